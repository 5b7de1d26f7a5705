/**
 * Builds an exchange from a described or recorded request for a dry run. The head is validated with the same function
 * as on a listener.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { GivenToken, RecordedIdentity } from "../../core/dry-env.ts";
import { GatewayError } from "../../core/errors.ts";
import { Exchange, NO_BODY, type RequestBody } from "../../core/exchange.ts";
import { asGatewayError } from "../../core/reply.ts";
import type { LlmAttributes, McpAttributes } from "../../core/request-attributes.ts";
import type { Listener } from "../../core/topology.ts";
import { MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { headBytes, type RequestHead, readRequestHead } from "../../http/request-head.ts";
import { MIRRORED, mirrorHeader } from "../../mcp/protocol/mirror-headers.ts";
import {
  CLIENT_CAPABILITIES,
  LATEST_2025,
  LATEST_2026,
  PROTOCOL_VERSION,
} from "../../mcp/protocol/protocol-version.ts";
import type { RecordedRequest } from "../../record/recorded-request.ts";
import { forwardedClient, type IsTrustedPeer } from "../listen/request-entry.ts";

export interface DryRequest {
  readonly method: string;
  /** The URL is absolute or a path. */
  readonly url: string;
  /** Selects the listener by name and takes precedence over the port of the URL. */
  readonly listener?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The peer's address is 127.0.0.1 by default. */
  readonly source?: string | undefined;
  readonly identity?: string | undefined;
  readonly given?: GivenToken | undefined;
  readonly body?: string | undefined;
  readonly mcp?: DryMessage | undefined;
  readonly model?: string | undefined;
  readonly recorded?: RecordedIdentity | undefined;
  /** If set, these attributes are used instead of parsing the body. */
  readonly attributes?:
    | { readonly mcp?: McpAttributes | undefined; readonly llm?: LlmAttributes | undefined }
    | undefined;
}

const HEAD = peerInput("client/http1-head");

const DEFAULT_SOURCE = "127.0.0.1";
/** A recorded request has no body, and its host is a separate field. */
const FRAMING: ReadonlySet<string> = new Set([...MESSAGE_HEADERS, "host", "expect"]);

/** Throws an Error if no listener matches. */
export function selectListener(listeners: readonly Listener[], request: DryRequest): Listener {
  if (request.listener !== undefined) {
    const named = listeners.find(({ name }) => name === request.listener);
    if (named) return named;
    throw new Error(`no listener is named ${JSON.stringify(request.listener)}: ${listed(listeners)}`);
  }
  const [only, ...more] = listeners;
  if (only === undefined) throw new Error("the configuration has no listener");
  if (more.length === 0) return only;
  const absolute = /^(https?):\/\/[^/?#]*?(?::(\d+))?(?:[/?#]|$)/i.exec(request.url);
  const port = absolute && Number(absolute[2] ?? (absolute[1]?.toLowerCase() === "https" ? 443 : 80));
  const found = listeners.find((listener) => listener.port === port);
  if (found) return found;
  throw new Error(
    `the URL ${JSON.stringify(request.url)} chooses no listener: give the port in it, or name one: ${listed(listeners)}`,
  );
}

/** Throws a GatewayError if the URL or the head is invalid. */
export function dryExchange(
  request: DryRequest,
  listener: Listener,
  clock: Clock,
  isTrustedPeer: IsTrustedPeer,
): Exchange {
  const message = request.mcp && mcpMessage(request.mcp);
  const body = request.body ?? message?.body ?? (request.model === undefined ? undefined : llmBody(request.model));
  const { host, target } = splitUrl(request.url);
  const headers: Record<string, string> = { host, ...message?.headers };
  if (body !== undefined) headers["content-type"] = "application/json";
  for (const [name, value] of Object.entries(request.headers ?? {})) headers[name.toLowerCase()] = value;
  const isTrusted = isTrustedPeer(request.source ?? DEFAULT_SOURCE);
  const client = isTrusted ? forwardedClient(headers["x-forwarded-for"], isTrustedPeer) : undefined;
  const pairs = toPairs(headers);
  return buildExchange({ ...request, client, isTrusted, target, pairs, body: toRequestBody(body) }, listener, clock);
}

export function recordedExchange(recorded: RecordedRequest, listener: Listener, clock: Clock): Exchange {
  const { method, host, path, query, headers, source, client, identity, llm } = recorded;
  const pairs = ["host", host];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!FRAMING.has(name)) pairs.push(name, headers[i + 1] as string);
  }
  const target = query === "" ? path : `${path}?${query}`;
  // Forwarding headers of untrusted peers were removed before the request was recorded, so the remaining ones are
  // trusted.
  const read = { method, target, pairs, source, client, isTrusted: true, identity, body: NO_BODY, attributes: { llm } };
  return buildExchange(read, listener, clock);
}

interface ReadRequest extends Pick<DryRequest, "method" | "source" | "identity" | "attributes"> {
  readonly client: string | undefined;
  readonly isTrusted: boolean;
  readonly target: string;
  readonly pairs: string[];
  readonly body: RequestBody;
}

function buildExchange(request: ReadRequest, listener: Listener, clock: Clock): Exchange {
  const { method, target, pairs, client, isTrusted, identity, body } = request;
  const head = headOf(method, target, pairs, isTrusted);
  const exchange = new Exchange({
    id: "dry-run",
    listener: listener.name,
    source: {
      address: request.source ?? DEFAULT_SOURCE,
      port: 0,
      ...(client === undefined ? {} : { client }),
      ...(identity === undefined ? {} : { identity }),
    },
    request: {
      method,
      scheme: listener.tls ? "https" : "http",
      namesHttps: false,
      host: head.host,
      path: head.path,
      rawPath: head.rawPath,
      query: head.query,
      version: "1.1",
      headers: head.headers,
      body,
    },
    startedAt: clock.now(),
    startedMs: clock.monotonicMs(),
  });
  if (request.attributes?.llm) exchange.attributes.llm = { ...request.attributes.llm };
  return exchange;
}

function headOf(method: string, target: string, pairs: string[], isTrusted: boolean): RequestHead {
  const bytes = headBytes(method, target, pairs);
  const received = { method, target, version: "1.1", pairs, bytes, expects: "nothing", fault: undefined } as const;
  try {
    return readRequestHead(HEAD, received, isTrusted, false);
  } catch (error) {
    throw asGatewayError(error);
  }
}

function toPairs(headers: Readonly<Record<string, string>>): string[] {
  const pairs: string[] = [];
  for (const name in headers) pairs.push(name, headers[name] as string);
  return pairs;
}

function toRequestBody(text: string | undefined): RequestBody {
  return text === undefined ? NO_BODY : { kind: "bytes", bytes: Buffer.from(text) };
}

/** Avoids a URL parser, which would remove dot segments before they are checked. */
function splitUrl(url: string): { host: string; target: string } {
  if (url.startsWith("/")) return { host: "localhost", target: url };
  const absolute = /^https?:\/\/([^/?#]+)([^#]*)/i.exec(url);
  if (!absolute) throw new GatewayError("bad_request", { message: `bad request: ${JSON.stringify(url)} is not a URL` });
  const rest = absolute[2] as string;
  return { host: absolute[1] as string, target: rest.startsWith("/") ? rest : `/${rest}` };
}

function listed(listeners: readonly Listener[]): string {
  return listeners.map(({ name, port }) => `${name} (port ${port})`).join(", ");
}

interface DryMessage {
  /**
   * The default is `tools/call` with a tool, `prompts/get` with a prompt, `resources/read` with a resource, and
   * otherwise `tools/list`.
   */
  readonly method?: string | undefined;
  readonly tool?: string | undefined;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
  readonly prompt?: string | undefined;
  readonly resource?: string | undefined;
}

export interface WrittenMessage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

function mcpMessage(message: DryMessage): WrittenMessage {
  const method = message.method ?? defaultMethod(message);
  const accept = "application/json, text/event-stream";
  if (method === "initialize") {
    const clientInfo = { name: "dry-run", version: "1" };
    const params = { protocolVersion: LATEST_2025, capabilities: {}, clientInfo };
    return { headers: { accept }, body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }) };
  }
  const name = message.tool ?? message.prompt ?? message.resource;
  const params = {
    _meta: { [PROTOCOL_VERSION]: LATEST_2026, [CLIENT_CAPABILITIES]: {} },
    ...(message.resource === undefined ? {} : { uri: message.resource }),
    ...(message.resource === undefined && name !== undefined ? { name } : {}),
    ...(message.tool === undefined ? {} : { arguments: message.arguments ?? {} }),
  };
  return {
    headers: {
      accept,
      "mcp-protocol-version": LATEST_2026,
      "mcp-method": method,
      ...(MIRRORED.has(method) && name !== undefined ? { "mcp-name": mirrorHeader(name) } : {}),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  };
}

function llmBody(model: string): string {
  return JSON.stringify({ model, max_tokens: 1, messages: [{ role: "user", content: "dry run" }] });
}

function defaultMethod({ tool, prompt, resource }: DryMessage): string {
  if (tool !== undefined) return "tools/call";
  if (prompt !== undefined) return "prompts/get";
  return resource === undefined ? "tools/list" : "resources/read";
}
