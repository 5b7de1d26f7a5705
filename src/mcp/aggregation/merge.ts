/**
 * Several servers described as one: what `initialize` and `server/discover` say, and pages of their lists.
 */

import type { Steps } from "../../base/turns.ts";
import { type Span, slice } from "../../json/json-text.ts";
import { elementsInSteps, findInSteps } from "../../json/text-steps.ts";
import { LISTS } from "../protocol/access.ts";
import type { ServerAbout } from "../server-side/upstream.ts";
import type { PartOutcome } from "./gather.ts";

/** How the gateway names itself where it speaks for several servers. */
export const GATEWAY_INFO = { name: "gateway", title: "MCP gateway", version: "1.0.0" };
/** Which targets could not be asked, in the `_meta` of a merged result. */
export const FAILED_TARGETS = "gateway.internal/failedTargets";

type JsonObject = Readonly<Record<string, unknown>>;

/** What any of them can do: flags are joined by "or", objects member by member. */
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

/** Tasks are asked for by ids that say nothing of their target: with several targets they are not offered. */
export function routable(capabilities: Record<string, unknown>): Record<string, unknown> {
  const { tasks: _tasks, extensions, ...rest } = capabilities;
  if (!isObject(extensions)) return rest;
  const { "io.modelcontextprotocol/tasks": _extension, ...others } = extensions;
  return { ...rest, extensions: others };
}

/** One block per target, so that a model knows which hint belongs to which tools. */
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

/** Dates compare as text: the revision that all of them know. */
export function lowestVersion(versions: readonly string[]): string {
  return [...versions].sort()[0] ?? "";
}

export interface ListPage {
  /** Texts of the items, in the order of the targets. */
  readonly items: readonly string[];
  readonly nextCursor: string | undefined;
  readonly failed: ReadonlyMap<string, string>;
}

/** `item` makes the text of one item, or leaves it out. */
export function* mergePages(
  method: string,
  outcomes: readonly PartOutcome[],
  item: (text: string, span: Span, outcome: PartOutcome) => string | undefined,
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
    const list = yield* findInSteps(text, 0, "result", LISTS[method]?.member ?? "");
    for (const span of list ? yield* elementsInSteps(text, list.start) : []) {
      const made = item(text, span, outcome);
      if (made !== undefined) items.push(made);
      yield;
    }
    const cursor = yield* findInSteps(text, 0, "result", "nextCursor");
    const value = cursor && (JSON.parse(slice(text, cursor)) as unknown);
    if (typeof value === "string") cursors[name] = value;
  }
  return { items, nextCursor: Object.keys(cursors).length > 0 ? encodeCursor(cursors) : undefined, failed };
}

/** The places in the lists of several targets as one opaque text. */
export function encodeCursor(cursors: Readonly<Record<string, string>>): string {
  return Buffer.from(JSON.stringify(cursors)).toString("base64url");
}

/** Undefined if it is none of ours. */
export function decodeCursor(cursor: unknown): Readonly<Record<string, string>> | undefined {
  if (typeof cursor !== "string") return undefined;
  try {
    const value = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown;
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
