/**
 * What a message of the modern era has that a legacy one has not: the envelope in a request's `_meta`, and the
 * type, cache hints and identity in a result. Added and taken away in place.
 */
import { finish, type Steps } from "../../base/turns.ts";
import {
  find,
  findInSteps,
  insertMembers,
  memberOf,
  membersInSteps,
  removeMembers,
  splice,
} from "../../json/json-text.ts";
import type { Edit, Span } from "../../json/syntax.ts";
import { type ClientRequest, edited, editedRequest, type ServerMessage } from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LOG_LEVEL,
  PROTOCOL_VERSION,
  SERVER_INFO,
  SUBSCRIPTION_ID,
} from "../protocol/protocol-version.ts";

/** Results that carry how long they may be kept (2026-07-28, caching). */
const CACHEABLE: ReadonlySet<string> = new Set([
  "server/discover",
  "tools/list",
  "prompts/list",
  "resources/list",
  "resources/templates/list",
  "resources/read",
]);

const ENVELOPE: ReadonlySet<string> = new Set([PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL]);

/** `members` is `"key":value` pairs joined by commas. What the client wrote of an envelope gives way to it. */
export function withEnvelope(request: ClientRequest, members: string): ClientRequest {
  const bare = withoutEnvelope(request);
  return editedRequest(bare, [intoMeta(bare.text, members)]);
}

/** Parameters of a request that we send on behalf of another: its envelope, where it has one. */
export function envelopeOf(request: ClientRequest): { readonly _meta?: Readonly<Record<string, unknown>> } {
  const meta = request.params._meta;
  if (typeof meta !== "object" || meta === null) return {};
  const kept = Object.entries(meta).filter(([key]) => ENVELOPE.has(key));
  return kept.length === 0 ? {} : { _meta: Object.fromEntries(kept) };
}

/** Puts the answers to a server's questions into `params`, in the place of any that the client wrote itself. */
export function withInput(original: ClientRequest, members: string): ClientRequest {
  const before = find(original.text, 0, "params");
  const request = before
    ? editedRequest(
        original,
        removeMembers(original.text, before.start, (key) => key === "inputResponses" || key === "requestState"),
      )
    : original;
  const params = find(request.text, 0, "params");
  const edit = params
    ? insertMembers(request.text, params.start, members)
    : insertMembers(request.text, 0, `"params":{${members}}`);
  return editedRequest(request, [edit]);
}

/** The request without what only the modern era knows. */
export function withoutEnvelope(request: ClientRequest): ClientRequest {
  const { text } = request;
  const params = find(text, 0, "params");
  const meta = params && find(text, params.start, "_meta");
  const edits: Edit[] = [];
  if (meta) edits.push(...removeMembers(text, meta.start, (key) => ENVELOPE.has(key)));
  return edits.length === 0 ? request : editedRequest(request, edits);
}

/** A legacy result as the modern era wants it; what the server said itself stays. For small ones. */
export function asModernResult(message: ServerMessage, method: string, serverInfo: unknown): ServerMessage {
  return finish(modernResult(message, method, serverInfo));
}

/** The same for any. */
export function* modernResult(message: ServerMessage, method: string, serverInfo: unknown): Steps<ServerMessage> {
  const { text } = message;
  const result = yield* findInSteps(text, 0, "result");
  if (!result || text[result.start] !== "{") return message;
  const said = new Map<string, Span>();
  for (const one of yield* membersInSteps(text, result.start)) if (!said.has(one.key)) said.set(one.key, one);
  const added: string[] = [];
  if (!said.has("resultType")) added.push('"resultType":"complete"');
  if (CACHEABLE.has(method)) {
    if (!said.has("ttlMs")) added.push('"ttlMs":0');
    if (!said.has("cacheScope")) added.push('"cacheScope":"private"');
  }
  const edits: Edit[] = [];
  const meta = said.get("_meta");
  const identity = `${JSON.stringify(SERVER_INFO)}:${JSON.stringify(serverInfo)}`;
  if (serverInfo !== undefined && !meta) added.push(`"_meta":{${identity}}`);
  else if (serverInfo !== undefined && meta && !(yield* memberOf(text, meta, SERVER_INFO)))
    edits.push(insertMembers(text, meta.start, identity));
  if (added.length > 0) edits.push(insertMembers(text, result.start, added.join(",")));
  return edits.length === 0 ? message : edited(message, edits);
}

/** A notification on the stream of a subscription says which one. */
export function withSubscription(text: string, id: string): string {
  return splice(text, [intoMeta(text, `${JSON.stringify(SUBSCRIPTION_ID)}:${id}`)]);
}

export function withoutSubscription(message: ServerMessage): ServerMessage {
  const meta = find(message.text, 0, "params", "_meta");
  return meta
    ? edited(
        message,
        removeMembers(message.text, meta.start, (key) => key === SUBSCRIPTION_ID),
      )
    : message;
}

/** An edit that puts members into `params._meta`, whatever of it is there already. */
function intoMeta(text: string, members: string): Edit {
  const params = find(text, 0, "params");
  if (!params) return insertMembers(text, 0, `"params":{"_meta":{${members}}}`);
  const meta = find(text, params.start, "_meta");
  if (!meta) return insertMembers(text, params.start, `"_meta":{${members}}`);
  return text[meta.start] === "{" ? insertMembers(text, meta.start, members) : { ...meta, text: `{${members}}` };
}
