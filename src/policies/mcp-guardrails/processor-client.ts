/**
 * Implements a client for services that inspect MCP messages over agentgateway's gRPC protocol.
 */

import type { MethodDefinition } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { openGrpcClient } from "../../http/client/grpc-client.ts";
import { callUnary } from "../../http/client/grpc-unary.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { TlsOptions } from "../../http/http-client.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import { checkHeaderCount, type HeaderChange, headerChange, mayChange } from "../../policy-parts/service-headers.ts";
import {
  fromWireStruct,
  PROTOCOL,
  SERVICE_NAME,
  type WireRequest,
  type WireResponse,
  type WireResult,
} from "./protocol.ts";

const CHANGE = peerInput("mcp-guardrails/change");

/** Limits parameters and results, in both directions. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;
/** Its limit leaves room for headers and an error beside a body. */
const MESSAGE = peerInput("mcp-guardrails/message");
const MAX_REASON_CHARS = 1_000;

export interface GuardrailClient {
  /** The functions reject if the service does not send a response within the timeout. */
  checkRequest(request: WireRequest, timeoutMs: number): Promise<WireResult>;
  checkResponse(response: WireResponse, timeoutMs: number): Promise<WireResult>;
  close(): void;
}

export function openGuardrailClient(
  host: string,
  clock: Clock,
  egress: EgressGuard,
  tls: TlsOptions | undefined,
): GuardrailClient {
  const opening = openGrpcClient(MESSAGE, host, PROTOCOL, SERVICE_NAME, { egress, tls });
  // Each call reports the failure. Without a call, the unhandled rejection would be logged as a defect.
  opening.catch(() => undefined);
  return {
    async checkRequest(request, timeoutMs) {
      const { client, service } = await opening;
      const method = service.CheckRequest as MethodDefinition<WireRequest, WireResult>;
      return callUnary(client, method, request, { clock, timeoutMs });
    },
    async checkResponse(response, timeoutMs) {
      const { client, service } = await opening;
      const method = service.CheckResponse as MethodDefinition<WireResponse, WireResult>;
      return callUnary(client, method, response, { clock, timeoutMs });
    },
    close: () => void opening.then(({ client }) => client.close()).catch(() => undefined),
  };
}

export type Decision =
  | { readonly kind: "rejected"; readonly code: number; readonly message: string; readonly data: unknown }
  | {
      readonly kind: "passed" | "changed";
      /** The new parameters or result as JSON. */
      readonly body: string | undefined;
      readonly set: readonly HeaderChange[];
      readonly remove: readonly string[];
      readonly metadata: Readonly<Record<string, unknown>> | undefined;
    };

/** The JSON-RPC codes by the code of the service's error: unknown, permission denied, resource exhausted, invalid. */
const CODES: readonly number[] = [-32603, -32001, -32003, -32600];

/** Throws if the result has no decision, or a change that the gateway cannot apply. */
export function parseResult({ pass, mutated, error, headerMutation, metadata }: WireResult): Decision {
  if (error)
    return {
      kind: "rejected",
      code: CODES[error.code] ?? -32603,
      message: error.reason.slice(0, MAX_REASON_CHARS) || "rejected by an MCP guardrail",
      // Invalid JSON is omitted, because the rejection itself must not be lost.
      data: tryReadJson(CHANGE, error.mcpError),
    };
  if (!pass && !mutated) throw new Error("a result without a decision");
  const { set = [], remove = [] } = headerMutation ?? {};
  checkHeaderCount([...set, ...remove]);
  return {
    kind: mutated ? "changed" : "passed",
    body: mutated && objectText(mutated),
    set: set.flatMap(({ key, value }) => headerChange(key, Buffer.from(value).toString("latin1"), "replace") ?? []),
    remove: remove.map((name) => name.toLowerCase()).filter(mayChange),
    metadata: metadata ? fromWireStruct(metadata) : undefined,
  };
}

function objectText(bytes: Uint8Array): string {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  const value = readJson(CHANGE, text);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error("a change that is not a JSON object");
  return text;
}
