/**
 * Merges the responses of several targets to one request.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { VERSION } from "../../base/version.ts";
import { find, insertMembers, member, removeMembers, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { LISTS, listProblem } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  failCall,
  NO_CALL,
  runMessageSteps,
  runSteps,
  serverFailure,
} from "../protocol/call.ts";
import { type ClientRequest, editedRequest, INVALID_PARAMS, type ServerMessage } from "../protocol/json-rpc.ts";
import { itemName, type ListItem, type ListMembers, readListContent } from "../protocol/list-content.ts";
import type { ServerAbout, Upstream } from "../server-side/upstream.ts";
import { type Names, renamedItem } from "./names.ts";

const PART = peerInput("mcp-server/part");
const CURSOR = peerInput("client/mcp-cursor");

export interface TargetRequest {
  readonly upstream: Upstream;
  readonly request: ClientRequest;
}

export interface TargetResponse extends TargetRequest {
  /** The value is undefined if the target failed or returned an error. */
  readonly result: ServerMessage | undefined;
  readonly failure: Failure | undefined;
}

/**
 * Sends one request to each target. When all have responded or failed, `done` receives the outcomes in the order of
 * `parts`.
 */
export function requestAll(
  call: Call,
  parts: readonly TargetRequest[],
  done: (outcomes: readonly TargetResponse[]) => void,
): CallHandle {
  const outcomes = new Map<TargetRequest, TargetResponse>();
  let isOver = false;
  const end = (part: TargetRequest, result: ServerMessage | undefined, failure: Failure | undefined): void => {
    outcomes.set(part, { ...part, result, failure });
    if (isOver || outcomes.size < parts.length) return;
    isOver = true;
    try {
      done(parts.map((one) => outcomes.get(one) as TargetResponse));
    } catch (error) {
      // The client must not wait forever.
      call.failed(serverFailure("the responses of the servers could not be merged"));
      throw error;
    }
  };
  if (parts.length === 0) {
    done([]);
    return NO_CALL;
  }
  const running = parts.map((part) =>
    part.upstream.call({
      request: part.request,
      headers: call.headers,
      wire: call.wire,
      isLive: call.isLive === true,
      notified: (message) => call.notified(message),
      asked: (question) => call.asked(question),
      answered: (message) =>
        runMessageSteps(
          message,
          () => listProblem(part.request, message, part.upstream.target.name),
          (problem) => {
            if (problem) end(part, undefined, problem);
            else if (message.kind === "result") end(part, message, undefined);
            else end(part, undefined, errorToFailure(message));
          },
          (failure) => end(part, undefined, failure),
        ),
      failed: (failure) => end(part, undefined, failure),
    }),
  );
  return {
    cancel: (reason) => {
      for (const one of running) one.cancel(reason);
    },
  };
}

export function totalChars(outcomes: readonly TargetResponse[]): number {
  return outcomes.reduce((chars, { result }) => chars + (result?.text.length ?? 0), 0);
}

export function errorToFailure(message: ServerMessage): Failure {
  try {
    const { error } = readJson(PART, message.text) as { error?: { code?: unknown; message?: unknown; data?: unknown } };
    return {
      code: typeof error?.code === "number" ? error.code : -32603,
      message: String(error?.message ?? "error"),
      status: 200,
      ...(error?.data === undefined ? {} : { data: error.data }),
    };
  } catch {
    return { code: -32603, message: "the server's error could not be read", status: 200 };
  }
}

export const GATEWAY_INFO = { name: "gateway", title: "MCP gateway", version: VERSION };
export const FAILED_TARGETS = "gateway.internal/failedTargets";

type JsonObject = Readonly<Record<string, unknown>>;

/** Combines flags with OR and merges objects member by member. */
export function mergeCapabilities(all: readonly JsonObject[]): Record<string, unknown> {
  const merged: Record<string, unknown> = Object.create(null);
  for (const one of all) {
    for (const [key, value] of Object.entries(one)) {
      const before = merged[key];
      if (before === undefined) merged[key] = value;
      else if (isObject(before) && isObject(value)) merged[key] = mergeCapabilities([before, value]);
      else if (typeof before === "boolean" && typeof value === "boolean") merged[key] = before || value;
    }
  }
  return merged;
}

export function routable(capabilities: Record<string, unknown>): Record<string, unknown> {
  const { tasks: _tasks, extensions, ...rest } = capabilities;
  if (!isObject(extensions)) return rest;
  const { "io.modelcontextprotocol/tasks": _extension, ...others } = extensions;
  return { ...rest, extensions: others };
}

/** Labels each block with its target, so that a model can match hints to tools. */
export function mergeInstructions(
  all: readonly { target: string; about: ServerAbout }[],
  failed: ReadonlyMap<string, string>,
): string | undefined {
  const blocks = all
    .filter(({ about }) => about.instructions)
    .map(({ target, about }) => `[${target}]\n${about.instructions}`);
  for (const [target, reason] of failed) blocks.push(`[${target}]\nNot available: ${reason}`);
  return blocks.length === 0 ? undefined : blocks.join("\n\n");
}

/** Versions are dates, so string order is correct. */
export function lowestVersion(versions: readonly string[]): string {
  return [...versions].sort()[0] ?? "";
}

export interface ListPage {
  readonly items: readonly string[];
  readonly nextCursor: string | undefined;
  readonly failed: ReadonlyMap<string, string>;
}

function* mergePages(
  list: ListMembers,
  outcomes: readonly TargetResponse[],
  show: (text: string, item: ListItem, outcome: TargetResponse) => string | undefined,
): Steps<ListPage> {
  const items: string[] = [];
  const cursors: Record<string, string> = {};
  const failed = new Map<string, string>();
  for (const outcome of outcomes) {
    const { name } = outcome.upstream.target;
    if (outcome.result === undefined) {
      failed.set(name, outcome.failure?.message ?? "no answer");
      continue;
    }
    const { text } = outcome.result;
    const content = yield* readListContent(outcome.result, list);
    for (const item of content.items ?? []) {
      const shown = show(text, item, outcome);
      if (shown !== undefined) items.push(shown);
      yield;
    }
    const cursor = content.members.find(({ key }) => key === "nextCursor");
    const value = cursor && readJson(PART, slice(text, cursor));
    if (typeof value === "string") cursors[name] = value;
  }
  return { items, nextCursor: Object.keys(cursors).length > 0 ? encodeCursor(cursors) : undefined, failed };
}

export function encodeCursor(cursors: Readonly<Record<string, string>>): string {
  return Buffer.from(JSON.stringify(cursors)).toString("base64url");
}

export function decodeCursor(cursor: unknown): Readonly<Record<string, string>> | undefined {
  if (typeof cursor !== "string") return undefined;
  try {
    const value = readJson(CURSOR, Buffer.from(cursor, "base64url"));
    return isObject(value) && Object.values(value).every((one) => typeof one === "string")
      ? (value as Record<string, string>)
      : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export interface MergedListOptions {
  readonly upstreams: readonly Upstream[];
  readonly names: Names;
  readonly failureMode: "failOpen" | "failClosed";
  isMissing(upstream: Upstream): boolean;
  /** The result completes the sentence "target x …". */
  absence(upstream: Upstream): string;
  answer(result: string): void;
}

export function mergedList(call: Call, env: MergedListOptions): CallHandle {
  const { request, access } = call;
  const { names } = env;
  const list = LISTS[request.method] as (typeof LISTS)[string];
  const cursors = request.params.cursor === undefined ? undefined : decodeCursor(request.params.cursor);
  if (request.params.cursor !== undefined && cursors === undefined)
    return failCall(call, { code: INVALID_PARAMS, status: 200, message: "Invalid cursor" });
  const { parts, skipped } = selectTargets(env, request, list.member, cursors);
  const seen = new Set<string>();
  const show = (text: string, item: ListItem, { upstream }: TargetResponse): string | undefined => {
    const name = itemName(text, item);
    if (access?.allows(list.kind, name, upstream.target.name) === false) return undefined;
    // Without prefixes, the first target that has a name takes precedence.
    if (!names.isPrefixed && seen.has(name)) return undefined;
    seen.add(name);
    return renamedItem(text, item, request.method, names, upstream.target.name);
  };
  const answer = (page: ListPage): void => {
    if (page.failed.size > 0 && (page.failed.size === env.upstreams.length || env.failureMode === "failClosed")) {
      call.failed(allFailed(page.failed));
      return;
    }
    const next = page.nextCursor === undefined ? "" : `,"nextCursor":${JSON.stringify(page.nextCursor)}`;
    const meta = page.failed.size === 0 ? "" : `,${JSON.stringify(failedMeta(page.failed)).slice(1, -1)}`;
    env.answer(`{"${list.member}":[${page.items.join(",")}]${next}${meta}}`);
  };
  return requestAll(call, parts, (outcomes) =>
    runSteps(
      totalChars(outcomes) > SLICED_BYTES,
      () => mergePages(list, [...outcomes, ...skipped], show),
      answer,
      (failure) => call.failed(failure),
    ),
  );
}

export function failedMeta(failed: ReadonlyMap<string, string>): object {
  return failed.size === 0 ? {} : { _meta: { [FAILED_TARGETS]: Object.fromEntries(failed) } };
}

/** Selects the targets for the page. A later page includes only targets with a cursor. */
function selectTargets(
  env: MergedListOptions,
  request: ClientRequest,
  capability: string,
  cursors: Readonly<Record<string, string>> | undefined,
): { parts: TargetRequest[]; skipped: TargetResponse[] } {
  const wanted = env.upstreams.filter((upstream) => {
    if (cursors) return cursors[upstream.target.name] !== undefined;
    const key = capability === "resourceTemplates" ? "resources" : capability;
    return upstream.about === undefined || upstream.about.capabilities[key] !== undefined;
  });
  const skipped = wanted.filter(
    (upstream) => env.isMissing(upstream) || (upstream.isBackingOff && env.failureMode === "failOpen"),
  );
  const parts = wanted
    .filter((upstream) => !skipped.includes(upstream))
    .map((upstream) => ({ upstream, request: withCursor(request, cursors?.[upstream.target.name]) }));
  return {
    parts,
    skipped: skipped.map((upstream) => ({
      upstream,
      request,
      result: undefined,
      failure: serverFailure(`target "${upstream.target.name}" ${env.absence(upstream)}`),
    })),
  };
}

function withCursor(request: ClientRequest, cursor: string | undefined): ClientRequest {
  const params = find(request.text, 0, "params");
  if (!params) return request;
  const present = member(request.text, params.start, "cursor");
  if (cursor !== undefined) {
    const edit = present
      ? { start: present.start, end: present.end, text: JSON.stringify(cursor) }
      : insertMembers(request.text, params.start, `"cursor":${JSON.stringify(cursor)}`);
    return editedRequest(request, [edit]);
  }
  return present
    ? editedRequest(
        request,
        removeMembers(request.text, params.start, (key) => key === "cursor"),
      )
    : request;
}

function allFailed(failed: ReadonlyMap<string, string>): Failure {
  return serverFailure(
    [...failed].map(([target, why]) => (why.startsWith("target ") ? why : `target "${target}": ${why}`)).join("; "),
  );
}
