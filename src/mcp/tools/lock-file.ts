/**
 * The lock file as a whole, for those who write it: `gwctl mcp lock` and the admin interface. What servers offer now is
 * compared with what was accepted, each difference has a hash of what is shown of it, and only what was shown is taken over.
 */
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { fileProblem } from "../../base/file-problem.ts";
import { replaceFile } from "../../base/replace-file.ts";
import type { InspectedTarget } from "../../core/backend.ts";
import { canonical, diffLines, lockSchema, lockText, pinnedDefinition, type ToolDefinition } from "./tool-lock.ts";

/** Some ten thousand tools. The gateway reads no larger one, so none is written. */
export const MAX_LOCK_BYTES = 16 * 1024 * 1024;

/** The accepted definitions: target → tool → definition. */
export type LockedTools = ReadonlyMap<string, ReadonlyMap<string, ToolDefinition>>;

export interface ToolChange {
  readonly target: string;
  readonly tool: string;
  /** `gone`: it was accepted, and the server does not offer it any more. */
  readonly state: "new" | "changed" | "gone";
  readonly before?: ToolDefinition;
  readonly now?: ToolDefinition;
  /** Lines that were taken out and put in; cut if there are many. */
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
  /** Of all that is shown of the change, before and now: who accepts it says what was seen. */
  readonly hash: string;
}

/** Throws an Error that says what is wrong. A file that does not exist is undefined. */
export function readLockFile(file: string): LockedTools | undefined {
  const status = statSync(file, { throwIfNoEntry: false });
  if (status === undefined) return undefined;
  if (!status.isFile()) throw new Error(`${file} is not a regular file`);
  if (status.size > MAX_LOCK_BYTES) throw new Error(tooLarge(file));
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(fileProblem(file, error));
  }
  const locked = parseLockFile(text);
  if (locked === undefined) throw new Error(`${file} is not a lock file of this version: move it away first`);
  return locked;
}

/** Undefined: it is not one. Every name is kept, also those that mean something to JavaScript. */
export function parseLockFile(text: string): LockedTools | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!lockSchema.safeParse(parsed).success) return undefined;
  const { targets } = parsed as { targets: Record<string, Record<string, ToolDefinition>> };
  return new Map(Object.entries(targets).map(([target, tools]) => [target, new Map(Object.entries(tools))]));
}

/** In one step, so that a gateway that watches the file never reads half of it; a link stays a link. */
export function writeLockFile(file: string, locked: LockedTools): void {
  const text = lockFileText(locked);
  if (Buffer.byteLength(text) > MAX_LOCK_BYTES) throw new Error(tooLarge(file));
  replaceFile(file, text);
}

/** Targets in the order of the map, their tools by name. */
export function lockFileText(locked: LockedTools): string {
  const targets = plainObject(
    [...locked].map(([target, tools]) => [
      target,
      plainObject(
        [...tools].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, tool]) => [name, pinnedDefinition(tool)]),
      ),
    ]),
  );
  return lockText(targets);
}

/** Tools by name. A server that could not be asked may still offer what it does not show: nothing of it is gone. */
export function changesSince(locked: LockedTools, inspected: readonly InspectedTarget[]): ToolChange[] {
  return inspected.flatMap(({ target, tools, error }) => {
    const known = locked.get(target) ?? new Map<string, ToolDefinition>();
    const offered = new Set(tools.map(({ name }) => name));
    const gone = error === undefined ? [...known.keys()].filter((name) => !offered.has(name)) : [];
    return [
      ...tools.flatMap(({ name, definition, suspicious }) =>
        changeOf(target, name, { before: known.get(name), now: definition, suspicious }),
      ),
      ...gone.flatMap((name) => changeOf(target, name, { before: known.get(name), now: undefined, suspicious: [] })),
    ].sort((a, b) => (a.tool < b.tool ? -1 : 1));
  });
}

/** The same with these changes taken over; targets that they do not name stay as they are. */
export function withChanges(locked: LockedTools, changes: readonly ToolChange[]): LockedTools {
  const targets = new Map([...locked].map(([target, tools]) => [target, new Map(tools)]));
  for (const { target, tool, now } of changes) {
    const tools = targets.get(target) ?? new Map<string, ToolDefinition>();
    targets.set(target, tools);
    if (now === undefined) tools.delete(tool);
    else tools.set(tool, now);
  }
  return targets;
}

function changeOf(
  target: string,
  tool: string,
  seen: { before: ToolDefinition | undefined; now: ToolDefinition | undefined; suspicious: readonly string[] },
): ToolChange[] {
  const before = seen.before && pinnedDefinition(seen.before);
  const now = seen.now && pinnedDefinition(seen.now);
  const [old, current] = [before && canonical(before), now && canonical(now)];
  if (old === current) return [];
  const state = before === undefined ? "new" : now === undefined ? "gone" : "changed";
  return [
    {
      target,
      tool,
      state,
      ...(before ? { before } : {}),
      ...(now ? { now } : {}),
      difference: old !== undefined && current !== undefined ? diffLines(old, current) : [],
      suspicious: seen.suspicious,
      hash: createHash("sha256")
        .update(JSON.stringify([target, tool, old ?? null, current ?? null]))
        .digest("hex"),
    },
  ];
}

/** A name like `__proto__` is a member like any other. */
function plainObject<Value>(entries: readonly (readonly [string, Value])[]): Record<string, Value> {
  const plain: Record<string, Value> = Object.create(null);
  for (const [key, value] of entries) plain[key] = value;
  return plain;
}

function tooLarge(file: string): string {
  return `${file} is larger than ${MAX_LOCK_BYTES / 1024 / 1024} MiB`;
}
