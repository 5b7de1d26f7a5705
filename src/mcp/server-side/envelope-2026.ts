/**
 * Adds and removes the fields that 2026-07-28 defines: the envelope in a request's `_meta`, and the type, cache hints,
 * and server identity in a result.
 */
import { finish, type Steps } from "../../base/sliced-work.ts";
import {
  find,
  findInSteps,
  insertMembers,
  memberOf,
  membersInSteps,
  removeMembers,
  splice,
} from "../../json/json-text.ts";
import { type Edit, editAt, type Span } from "../../json/syntax.ts";
import {
  asMembersResult,
  type ClientRequest,
  edited,
  editedRequest,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LOG_LEVEL,
  PROTOCOL_VERSION,
  SERVER_INFO,
  SUBSCRIPTION_ID,
} from "../protocol/protocol-version.ts";

/** Lists the methods whose results contain cache hints (2026-07-28, caching). */
const CACHEABLE: ReadonlySet<string> = new Set([
  "server/discover",
  "tools/list",
  "prompts/list",
  "resources/list",
  "resources/templates/list",
  "resources/read",
]);

const ENVELOPE: ReadonlySet<string> = new Set([PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL]);

/** Replaces the request's envelope. `members` contains `"key":value` pairs joined by commas. */
export function withEnvelope(request: ClientRequest, members: string): ClientRequest {
  const bare = withoutEnvelope(request);
  return editedRequest(bare, [intoMeta(bare.text, members)]);
}

/** Returns the envelope of `request` as parameters for another request of the same client. */
export function copyEnvelope(request: ClientRequest): { readonly _meta?: Readonly<Record<string, unknown>> } {
  const meta = request.params._meta;
  if (typeof meta !== "object" || meta === null) return {};
  const kept = Object.entries(meta).filter(([key]) => ENVELOPE.has(key));
  return kept.length === 0 ? {} : { _meta: Object.fromEntries(kept) };
}

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

export function withoutEnvelope(request: ClientRequest): ClientRequest {
  const { text } = request;
  const params = find(text, 0, "params");
  const meta = params && find(text, params.start, "_meta");
  const edits: Edit[] = [];
  if (meta) edits.push(...removeMembers(text, meta.start, (key) => ENVELOPE.has(key)));
  return edits.length === 0 ? request : editedRequest(request, edits);
}

/** Blocks the event loop during the conversion. Use `result2026` for large results. */
export function asResult2026(message: ServerMessage, method: string, serverInfo: unknown): ServerMessage {
  return finish(result2026(message, method, serverInfo));
}

export function* result2026(message: ServerMessage, method: string, serverInfo: unknown): Steps<ServerMessage> {
  const { text, members } = message;
  const identity = `${JSON.stringify(SERVER_INFO)}:${JSON.stringify(serverInfo)}`;
  const added = new Map([["resultType", '"complete"']]);
  if (CACHEABLE.has(method)) added.set("ttlMs", "0").set("cacheScope", '"private"');
  if (serverInfo !== undefined) added.set("_meta", `{${identity}}`);
  if (members !== undefined && !members.has("_meta")) {
    const pieces = [...added].filter(([name]) => !members.has(name)).map(([name, json]) => [name, [json]] as const);
    return asMembersResult(new Map([...pieces, ...members]));
  }
  const result = yield* findInSteps(text, 0, "result");
  if (!result || text[result.start] !== "{") return message;
  const present = new Map<string, Span>();
  for (const one of yield* membersInSteps(text, result.start)) if (!present.has(one.key)) present.set(one.key, one);
  const edits: Edit[] = [];
  const meta = present.get("_meta");
  if (serverInfo !== undefined && meta && !(yield* memberOf(text, meta, SERVER_INFO)))
    edits.push(insertMembers(text, meta.start, identity));
  const missing = [...added]
    .filter(([name]) => !present.has(name))
    .map(([name, json]) => `${JSON.stringify(name)}:${json}`);
  if (missing.length > 0) edits.push(insertMembers(text, result.start, missing.join(",")));
  return edits.length === 0 ? message : edited(message, edits);
}

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

function intoMeta(text: string, members: string): Edit {
  const params = find(text, 0, "params");
  if (!params) return insertMembers(text, 0, `"params":{"_meta":{${members}}}`);
  const meta = find(text, params.start, "_meta");
  if (!meta) return insertMembers(text, params.start, `"_meta":{${members}}`);
  return text[meta.start] === "{" ? insertMembers(text, meta.start, members) : editAt(meta, `{${members}}`);
}
