/**
 * Clients of the legacy era without sessions (`statefulMode: stateless`): each request stands alone, as in the modern era,
 * and is served the same way. What belongs to a session does not exist for them: questions of servers, subscriptions,
 * log levels, and the stream of a GET.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import { find, insertMembers, member, withMembers } from "../../json/json-text.ts";
import { GATEWAY_INFO } from "../aggregation/merge-responses.ts";
import { withAnswer } from "../protocol/access.ts";
import type { Call } from "../protocol/call.ts";
import { editedRequest } from "../protocol/edited-request.ts";
import {
  CLIENT_CAPABILITIES,
  isLegacyVersion,
  LATEST_LEGACY,
  LATEST_MODERN,
  PROTOCOL_VERSION,
  SERVER_INFO,
} from "../protocol/era.ts";
import {
  asClientRequest,
  asServerMessage,
  type ClientMessage,
  type ClientRequest,
  INVALID_REQUEST,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { type Demand, isBatch, Refused } from "./downstream.ts";

const ENVELOPE = new Map([
  [PROTOCOL_VERSION, JSON.stringify(LATEST_MODERN)],
  [CLIENT_CAPABILITIES, "{}"],
]);
/** What a client without a session can use. */
const CAPABILITIES = ["tools", "prompts", "resources", "completions"];
const METHOD_NOT_ALLOWED = -32000;

/** A POST without a session id. */
export function statelessPost(parsed: ClientMessage | readonly ClientMessage[]): Demand {
  if (isBatch(parsed))
    throw new Refused(400, INVALID_REQUEST, "Invalid Request: there are no batches without a session");
  return parsed.kind === "request" ? { kind: "stateless", request: parsed } : { kind: "dropped" };
}

/** A GET or DELETE without a session id: clients take the status for "not offered". */
export function statelessOther({ method }: GatewayRequest): never {
  throw new Refused(405, METHOD_NOT_ALLOWED, `Method not allowed: ${method} needs a session, and there are none here`, {
    headers: ["allow", "POST"],
  });
}

/** The result of what is answered without asking a server; undefined for everything else. */
export function ownResult({ method }: ClientRequest): string | undefined {
  return method === "ping" || method === "logging/setLevel" ? "{}" : undefined;
}

/** As a client of the modern era would have sent it. */
export function asModernRequest(request: ClientRequest): ClientRequest {
  if (request.method === "initialize") {
    const envelope = [...ENVELOPE].map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",");
    return asClientRequest("server/discover", `{"_meta":{${envelope}}}`);
  }
  const { text } = request;
  const params = find(text, 0, "params");
  const meta = params && member(text, params.start, "_meta");
  const sent = request.params._meta;
  const isObject = typeof sent === "object" && sent !== null && !Array.isArray(sent);
  const written = withMembers(text, isObject ? meta : undefined, ENVELOPE);
  const meant = { ...request.params, _meta: JSON.parse(written) as unknown };
  if (params === undefined)
    return editedRequest(request, [insertMembers(text, 0, `"params":{"_meta":${written}}`)], meant);
  const edit = meta
    ? { start: meta.start, end: meta.end, text: written }
    : insertMembers(text, params.start, `"_meta":${written}`);
  return editedRequest(request, [edit], meant);
}

/** A client's call, as it is run for `sent`. */
export function statelessCall(call: Call, sent: ClientRequest): Call {
  const { request } = call;
  const answered = withAnswer(call, (message) =>
    request.method === "initialize" ? asInitialized(message, request) : message,
  );
  return { ...answered, request: sent, routed: (target) => call.routed?.(target) };
}

/** The answer to `initialize`, from that to `server/discover`. */
function asInitialized(answer: ServerMessage, { params }: ClientRequest): ServerMessage {
  const { result } = JSON.parse(answer.text) as { result: Readonly<Record<string, unknown>> };
  const { capabilities, instructions, _meta: meta } = result;
  const asked = String(params.protocolVersion);
  const offered = typeof capabilities === "object" && capabilities !== null ? capabilities : {};
  const info = (meta as Record<string, unknown> | undefined)?.[SERVER_INFO];
  return asServerMessage(
    resultText(
      "0",
      JSON.stringify({
        protocolVersion: isLegacyVersion(asked) ? asked : LATEST_LEGACY,
        capabilities: Object.fromEntries(CAPABILITIES.filter((name) => name in offered).map((name) => [name, {}])),
        serverInfo: info ?? GATEWAY_INFO,
        ...(typeof instructions === "string" ? { instructions } : {}),
      }),
    ),
  );
}
