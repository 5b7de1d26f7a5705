/**
 * Reads and writes the lock file, which contains the definition of each tool that an operator accepted.
 */
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { z } from "zod";
import { fileProblem, replaceFile } from "../../base/files.ts";
import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { InspectedTarget } from "../../core/backend.ts";
import { readJson } from "../../json/read-json.ts";

const LOCK = peerInput("file/tool-lock");

/**
 * Version 2 pins every member of a tool and the server's instructions. Version 1 pins neither the instructions nor the
 * members below, and keeps that meaning until the file is rewritten.
 */
const LOCK_VERSION = 2;
const NOT_IN_VERSION_1: ReadonlySet<string> = new Set(["_meta", "icons"]);
/**
 * The lock file stores a server's instructions under this name. No tool can match the entry, because a tool definition
 * contains a name and this entry does not.
 */
export const INSTRUCTIONS_ENTRY = "(instructions)";
const MAX_DIFF_LINES = 60;
/** Longer definitions are not compared line by line, because that takes quadratic time. */
const MAX_COMPARED_LINES = 400;

export type ToolDefinition = Readonly<Record<string, unknown>>;

export const lockSchema = z.strictObject({
  version: z.literal([1, LOCK_VERSION]),
  targets: z.record(z.string(), z.record(z.string(), z.record(z.string(), z.unknown()))),
});

export interface ToolLock {
  readonly fingerprint: string;
  readonly pinsInstructions: boolean;
  /** Returns undefined if the definition matches the accepted one. */
  difference(name: string, definition: ToolDefinition): readonly string[] | undefined;
}

export function instructionsDefinition(instructions: string): ToolDefinition {
  return { instructions };
}

/** Throws an Error if the file is invalid. Targets that the file does not list have no accepted tools. */
export function parseToolLocks(text: string): (target: string) => ToolLock {
  let parsed: unknown;
  try {
    parsed = readJson(LOCK, text);
  } catch {
    throw new Error("it is not valid JSON: write it with `gwctl mcp lock`");
  }
  const read = lockSchema.safeParse(parsed);
  if (!read.success) throw new Error("it is not a lock file of this version: write it with `gwctl mcp lock`");
  const { version } = read.data;
  const targets = lookupTable(read.data.targets);
  return (target) => createToolLock(targets[target] ?? {}, version);
}

function createToolLock(accepted: Readonly<Record<string, ToolDefinition>>, version: number): ToolLock {
  const compared = version === LOCK_VERSION ? canonical : (tool: ToolDefinition) => canonical(asInVersion1(tool));
  const texts = new Map(Object.entries(accepted).map(([name, definition]) => [name, compared(definition)]));
  const hash = createHash("sha256").update(`${version}\n`);
  for (const [name, text] of texts) hash.update(`${name}\n${text}\n`);
  return {
    fingerprint: hash.digest("hex"),
    pinsInstructions: version === LOCK_VERSION,
    difference(name, definition) {
      const before = texts.get(name);
      const now = compared(definition);
      if (before === now) return undefined;
      return before === undefined ? [NOT_LOCKED] : diffLines(before, now);
    },
  };
}

const NOT_LOCKED = "the tool is not in the lock file";

function asInVersion1(tool: ToolDefinition): ToolDefinition {
  return Object.fromEntries(Object.entries(tool).filter(([key]) => !NOT_IN_VERSION_1.has(key)));
}

export function lockText(targets: object): string {
  return `${JSON.stringify({ version: LOCK_VERSION, targets }, null, 2)}\n`;
}

/** Sorts the keys, so that their order in the server's response does not matter. */
export function pinnedDefinition(tool: ToolDefinition): ToolDefinition {
  return sorted(tool) as ToolDefinition;
}

export function canonical(tool: ToolDefinition): string {
  return JSON.stringify(pinnedDefinition(tool), null, 2);
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => [key, sorted(one)]),
  );
}

/** Returns the removed (`-`) and added (`+`) lines in order, up to a limit. */
export function diffLines(before: string, after: string): string[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1;
  const lines = compared(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  if (lines.length <= MAX_DIFF_LINES) return lines;
  return [...lines.slice(0, MAX_DIFF_LINES), `… ${lines.length - MAX_DIFF_LINES} more lines`];
}

function compared(a: readonly string[], b: readonly string[]): string[] {
  const out = (lines: readonly string[]): string[] => lines.map((line) => `- ${line.trim()}`);
  const put = (lines: readonly string[]): string[] => lines.map((line) => `+ ${line.trim()}`);
  if (a.length > MAX_COMPARED_LINES || b.length > MAX_COMPARED_LINES) return [...out(a), ...put(b)];
  // `common` contains the length of the longest common subsequence of the remaining lines for each pair of positions.
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i * width + j] =
        a[i] === b[j]
          ? (common[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0);
  const lines: string[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      i += 1;
      j += 1;
    } else if (
      j >= b.length ||
      (i < a.length && (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    )
      lines.push(...out(a.slice(i, ++i)));
    else lines.push(...put(b.slice(j, ++j)));
  }
  return lines;
}

/** The gateway does not read larger files, so none is written. */
export const MAX_LOCK_BYTES = 16 * 1024 * 1024;

export type LockedTools = ReadonlyMap<string, ReadonlyMap<string, ToolDefinition>>;

export interface ToolChange {
  readonly target: string;
  readonly tool: string;
  /** `gone` means that the tool was accepted but the server no longer offers it. */
  readonly state: "new" | "changed" | "gone";
  readonly before?: ToolDefinition;
  readonly now?: ToolDefinition;
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
  /**
   * Identifies both definitions. An acceptance contains the hash, so that it applies only to the change that was
   * reviewed.
   */
  readonly hash: string;
}

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

/** Returns undefined if the text is not a lock file. All names are kept, including `__proto__`. */
export function parseLockFile(text: string): LockedTools | undefined {
  let parsed: unknown;
  try {
    parsed = readJson(LOCK, text);
  } catch {
    return undefined;
  }
  if (!lockSchema.safeParse(parsed).success) return undefined;
  const { targets } = parsed as { targets: Record<string, Record<string, ToolDefinition>> };
  return new Map(Object.entries(targets).map(([target, tools]) => [target, new Map(Object.entries(tools))]));
}

/** Replaces the file, atomically if possible. A symlink is preserved. */
export function writeLockFile(file: string, locked: LockedTools): void {
  const text = lockFileText(locked);
  if (Buffer.byteLength(text) > MAX_LOCK_BYTES) throw new Error(tooLarge(file));
  replaceFile(file, text);
}

/** Keeps the order of the targets and sorts their tools by name. */
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

/**
 * Sorts the changes of each target by tool name. A server that could not be inspected may still offer its tools, so
 * none of them is reported as gone.
 */
export function changesSince(locked: LockedTools, inspected: readonly InspectedTarget[]): ToolChange[] {
  return inspected.flatMap(({ target, tools, error }) => {
    const known = locked.get(target) ?? new Map<string, ToolDefinition>();
    const offered = new Set(tools.map(({ name }) => name));
    const gone = error === undefined ? [...known.keys()].filter((name) => !offered.has(name)) : [];
    return [
      ...tools.flatMap(({ name, definition, suspicious }) =>
        compareTool(target, name, { before: known.get(name), now: definition, suspicious }),
      ),
      ...gone.flatMap((name) => compareTool(target, name, { before: known.get(name), now: undefined, suspicious: [] })),
    ].sort((a, b) => (a.tool < b.tool ? -1 : 1));
  });
}

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

function compareTool(
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

/** Treats names such as `__proto__` as ordinary members. */
function plainObject<Value>(entries: readonly (readonly [string, Value])[]): Record<string, Value> {
  const plain: Record<string, Value> = Object.create(null);
  for (const [key, value] of entries) plain[key] = value;
  return plain;
}

function tooLarge(file: string): string {
  return `${file} is larger than ${MAX_LOCK_BYTES / 1024 / 1024} MiB`;
}
