/**
 * What a request of the modern era must have before it is served (2026-07-28, "Server Validation"): the envelope
 * in the body, a version that we know, and headers that say the same as the body. A gateway that decided by the
 * one while the server acts by the other would be no guard at all.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import {
  CLIENT_CAPABILITIES,
  HEADER_MISMATCH,
  isModernVersion,
  MODERN_VERSIONS,
  PROTOCOL_VERSION,
  UNSUPPORTED_VERSION,
} from "../protocol/era.ts";
import { type ClientMessage, type ClientRequest, INVALID_PARAMS, INVALID_REQUEST } from "../protocol/json-rpc.ts";
import { MIRRORED, readMirrorHeader } from "../protocol/mirror-headers.ts";
import { isBatch, Refused } from "./downstream.ts";

/** Whether a message is of the modern era: its body claims so, or its header names such a version. */
export function isModern(request: GatewayRequest, message: ClientMessage | readonly ClientMessage[]): boolean {
  if (isModernVersion(request.headers.get("mcp-protocol-version") ?? "")) return true;
  return isBatch(message) ? message.some(claims) : claims(message);
}

/** The request if it may be served; undefined for a notification, which is accepted and dropped. Throws Refused. */
export function modernPost(
  request: GatewayRequest,
  message: ClientMessage | readonly ClientMessage[],
): ClientRequest | undefined {
  if (isBatch(message))
    throw new Refused(400, INVALID_REQUEST, "Invalid Request: this protocol version has no batches");
  if (message.kind === "response")
    throw new Refused(400, INVALID_REQUEST, "Invalid Request: this protocol version has no responses of clients", {
      id: message.id,
    });
  if (message.kind === "notification") return undefined;
  checkEnvelope(message);
  checkVersion(request, message);
  checkMirrors(request, message);
  return message;
}

function claims(message: ClientMessage): boolean {
  return message.kind !== "response" && metaOf(message)?.[PROTOCOL_VERSION] !== undefined;
}

function checkEnvelope(request: ClientRequest): void {
  const meta = metaOf(request);
  const capabilities = meta?.[CLIENT_CAPABILITIES];
  const missing = [
    ...(typeof meta?.[PROTOCOL_VERSION] === "string" ? [] : [PROTOCOL_VERSION]),
    ...(typeof capabilities === "object" && capabilities !== null && !Array.isArray(capabilities)
      ? []
      : [CLIENT_CAPABILITIES]),
  ];
  if (missing.length > 0) {
    throw new Refused(400, INVALID_PARAMS, `Invalid params: _meta lacks ${missing.join(" and ")}`, {
      id: request.id,
      data: { missing },
    });
  }
}

function checkVersion(request: GatewayRequest, message: ClientRequest): void {
  const claimed = String(metaOf(message)?.[PROTOCOL_VERSION]);
  const header = request.headers.get("mcp-protocol-version");
  if (header !== claimed) mismatch(message, "MCP-Protocol-Version", header, claimed);
  if (isModernVersion(claimed)) return;
  throw new Refused(400, UNSUPPORTED_VERSION, "Unsupported protocol version", {
    id: message.id,
    data: { supported: MODERN_VERSIONS, requested: claimed.slice(0, 40) },
  });
}

function checkMirrors(request: GatewayRequest, message: ClientRequest): void {
  const method = request.headers.get("mcp-method");
  if (method !== message.method) mismatch(message, "Mcp-Method", method, message.method);
  const member = MIRRORED.get(message.method);
  if (member === undefined) return;
  const value = String(message.params[member]);
  const header = request.headers.get("mcp-name");
  if (header === undefined || readMirrorHeader(header) !== value) mismatch(message, "Mcp-Name", header, value);
}

function mismatch(message: ClientRequest, name: string, header: string | undefined, body: string): never {
  const said = header === undefined ? "is missing" : `is '${header.slice(0, 100)}'`;
  throw new Refused(400, HEADER_MISMATCH, `Header mismatch: ${name} ${said}, the body says '${body.slice(0, 100)}'`, {
    id: message.id,
  });
}

function metaOf(message: { readonly params: Readonly<Record<string, unknown>> }): Record<string, unknown> | undefined {
  const meta = message.params._meta;
  return typeof meta === "object" && meta !== null && !Array.isArray(meta)
    ? (meta as Record<string, unknown>)
    : undefined;
}
