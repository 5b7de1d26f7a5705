/**
 * One page of a list from several targets: each is asked with a cursor of its own, what they answer is merged under
 * the names that clients see, and what may not be used is left out. A target that just failed is not waited for.
 */

import { SLICED_BYTES } from "../../base/turns.ts";
import type { McpAccess } from "../../core/facts.ts";
import { find, insertMembers, member, removeMembers, type Span, slice } from "../../json/json-text.ts";
import { LISTS } from "../protocol/access.ts";
import { type Call, type Failure, NOTHING_RUNS, type Running, serverFailure } from "../protocol/call.ts";
import { editedRequest } from "../protocol/edited-request.ts";
import { type ClientRequest, INVALID_PARAMS } from "../protocol/json-rpc.ts";
import { whenWorked } from "../protocol/large-or-small.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { charsOf, gather, type Part, type PartOutcome } from "./gather.ts";
import { decodeCursor, FAILED_TARGETS, type ListPage, mergePages } from "./merge.ts";
import type { Names } from "./names.ts";
import { renamedItem } from "./rewrite-names.ts";

export interface ListEnv {
  readonly upstreams: readonly Upstream[];
  readonly names: Names;
  readonly failureMode: "failOpen" | "failClosed";
  /** The session went on without it. */
  isMissing(upstream: Upstream): boolean;
  /** Why it is not there; completes "target x …". */
  absence(upstream: Upstream): string;
  answer(result: string): void;
}

export function listOfAll(call: Call, access: McpAccess | undefined, env: ListEnv): Running {
  const { request } = call;
  const { names } = env;
  const list = LISTS[request.method] as (typeof LISTS)[string];
  const cursors = request.params.cursor === undefined ? undefined : decodeCursor(request.params.cursor);
  if (request.params.cursor !== undefined && cursors === undefined) {
    call.failed({ code: INVALID_PARAMS, status: 200, message: "Invalid cursor" });
    return NOTHING_RUNS;
  }
  const { parts, resting } = partsOf(env, request, list.member, cursors);
  const seen = new Set<string>();
  const shown = (text: string, span: Span, { upstream }: PartOutcome): string | undefined => {
    const name = nameOf(text, span, list.key);
    if (access?.allows(list.kind, name, upstream.target.name) === false) return undefined;
    // Without prefixes the first target that has a name owns it.
    if (!names.isPrefixed && seen.has(name)) return undefined;
    seen.add(name);
    return renamedItem(text, span, request.method, names, upstream.target.name);
  };
  const answer = (page: ListPage): void => {
    if (page.failed.size > 0 && (page.failed.size === env.upstreams.length || env.failureMode === "failClosed")) {
      call.failed(failureOf(page.failed));
      return;
    }
    const next = page.nextCursor === undefined ? "" : `,"nextCursor":${JSON.stringify(page.nextCursor)}`;
    const meta = page.failed.size === 0 ? "" : `,${JSON.stringify(failedMeta(page.failed)).slice(1, -1)}`;
    env.answer(`{"${list.member}":[${page.items.join(",")}]${next}${meta}}`);
  };
  return gather(call, parts, (outcomes) =>
    whenWorked(
      charsOf(outcomes) > SLICED_BYTES,
      () => mergePages(request.method, [...outcomes, ...resting], shown),
      answer,
      (failure) => call.failed(failure),
    ),
  );
}

export function failedMeta(failed: ReadonlyMap<string, string>): object {
  return failed.size === 0 ? {} : { _meta: { [FAILED_TARGETS]: Object.fromEntries(failed) } };
}

/** Who is asked for a page, and with which cursor. */
function partsOf(
  env: ListEnv,
  request: ClientRequest,
  capability: string,
  cursors: Readonly<Record<string, string>> | undefined,
): { parts: Part[]; resting: PartOutcome[] } {
  const wanted = env.upstreams.filter((upstream) => {
    if (cursors) return cursors[upstream.target.name] !== undefined;
    const key = capability === "resourceTemplates" ? "resources" : capability;
    return upstream.about === undefined || upstream.about.capabilities[key] !== undefined;
  });
  const resting = wanted.filter(
    (upstream) => env.isMissing(upstream) || (upstream.isResting && env.failureMode === "failOpen"),
  );
  const parts = wanted
    .filter((upstream) => !resting.includes(upstream))
    .map((upstream) => ({ upstream, request: withCursor(request, cursors?.[upstream.target.name]) }));
  return {
    parts,
    resting: resting.map((upstream) => ({
      upstream,
      request,
      result: undefined,
      failure: serverFailure(`target "${upstream.target.name}" ${env.absence(upstream)}`),
    })),
  };
}

/** The request with a target's own cursor, or without any. */
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

function nameOf(text: string, item: Span, key: string): string {
  const span = member(text, item.start, key);
  const value = span && (JSON.parse(slice(text, span)) as unknown);
  return typeof value === "string" ? value : "";
}

function failureOf(failed: ReadonlyMap<string, string>): Failure {
  return serverFailure(
    [...failed].map(([target, why]) => (why.startsWith("target ") ? why : `target "${target}": ${why}`)).join("; "),
  );
}
