/**
 * The cases that are kept in files: `seeds.json`, which reached something that no other had reached, and
 * `found-<hash>.json`, each of which was a fault once. Bytes are written as Latin-1 text, so that a person can read them.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isObject } from "./mutate.ts";
import type { Case } from "./target.ts";

const BYTES = "$bytes";
const SEEDS = "seeds.json";

export function corpusFolder(target: string, root = process.cwd()): string {
  return join(root, "test/fuzz/corpus", target);
}

/** With the name of its file. */
export function readFound(folder: string): { readonly file: string; readonly input: Case }[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => /^found-.*\.json$/.test(name))
    .sort()
    .map((file) => ({ file, input: readCase(join(folder, file)) }));
}

export function readSeeds(folder: string): Case[] {
  const path = join(folder, SEEDS);
  return existsSync(path) ? (decode(JSON.parse(readFileSync(path, "utf8"))) as Case[]) : [];
}

export function writeSeeds(folder: string, seeds: readonly Case[]): void {
  mkdirSync(folder, { recursive: true });
  const lines = seeds.map((seed) => JSON.stringify(encode(seed)));
  writeFileSync(join(folder, SEEDS), `[\n${lines.join(",\n")}\n]\n`);
}

export function readCase(path: string): Case {
  return decode(JSON.parse(readFileSync(path, "utf8")));
}

/** Returns the path. */
export function writeFound(folder: string, input: Case): string {
  mkdirSync(folder, { recursive: true });
  const text = `${JSON.stringify(encode(input))}\n`;
  const path = join(folder, `found-${createHash("sha256").update(text).digest("hex").slice(0, 12)}.json`);
  writeFileSync(path, text);
  return path;
}

export function encode(value: Case): unknown {
  if (Buffer.isBuffer(value)) return { [BYTES]: value.toString("latin1") };
  if (Array.isArray(value)) return (value as readonly Case[]).map(encode);
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, encode(inner)]));
  return value;
}

export function decode(value: unknown): Case {
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value !== "object" || value === null) return value as Case;
  const bytes = (value as Record<string, unknown>)[BYTES];
  if (typeof bytes === "string") return Buffer.from(bytes, "latin1");
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, decode(inner)]));
}
