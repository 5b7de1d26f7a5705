/**
 * Runs one target: seeds first, then cases that are generated or mutated from those that reached something new. Ends at
 * the first finding, which is made smaller. Everything follows from the seed, as long as it is the count that ends it.
 */

import { Random } from "../support/random.ts";
import { mutate } from "./mutate.ts";
import { shrink } from "./shrink.ts";
import { type Case, Finding, type Target } from "./target.ts";

/** Kept for mutation; what is larger slows every case that is made from it. */
const MAX_POOL = 2_000;
const MAX_POOLED_SIZE = 4_000;
const MAX_OUTCOMES = 20_000;
const LOOK_AT_CLOCK_EVERY = 256;
/** Most cases are refused with an error: its stack costs more than the refusal. One frame tells faults apart. */
const STACK_FRAMES = 1;
const STACK_FRAMES_OF_FINDING = 30;

export interface RunOptions {
  readonly seed: number;
  readonly maxCases: number;
  /** Asked now and then. */
  isOver?(): boolean;
  readonly corpus?: readonly Case[];
  progress?(cases: number, outcomes: number): void;
}

export interface RunReport {
  readonly cases: number;
  readonly outcomes: number;
  /** Cases that reached something that no case before them had reached, without those of the corpus. */
  readonly discoveries: readonly Case[];
  readonly finding: { readonly input: Case; readonly message: string } | undefined;
}

export async function runTarget(target: Target, options: RunOptions): Promise<RunReport> {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = STACK_FRAMES;
  try {
    return await runCases(target, options);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

async function runCases(target: Target, options: RunOptions): Promise<RunReport> {
  const random = new Random(options.seed);
  const begun = [...target.seeds, ...(options.corpus ?? [])];
  const pool: Case[] = [];
  const discoveries: Case[] = [];
  const outcomes = new Set<string>();
  let cases = 0;
  for (; cases < options.maxCases; cases++) {
    if (cases % LOOK_AT_CLOCK_EVERY === 0 && cases > begun.length) {
      options.progress?.(cases, outcomes.size);
      if (options.isOver?.() === true) break;
    }
    const isGiven = cases < begun.length;
    const input = isGiven ? (begun[cases] as Case) : nextCase(target, pool, random);
    let outcome: string;
    try {
      const result = target.run(input);
      outcome = typeof result === "string" ? result : await result;
    } catch (error) {
      const kind = kindOf(error);
      const smallest = await shrink(input, async (smaller) => kindOf(await errorOf(target, smaller)) === kind);
      Error.stackTraceLimit = STACK_FRAMES_OF_FINDING;
      const message = messageOf((await errorOf(target, smallest)) ?? error);
      return { cases: cases + 1, outcomes: outcomes.size, discoveries, finding: { input: smallest, message } };
    }
    if (outcomes.has(outcome) || outcomes.size >= MAX_OUTCOMES) continue;
    outcomes.add(outcome);
    if (sizeOf(input) > MAX_POOLED_SIZE) continue;
    if (pool.length < MAX_POOL) pool.push(input);
    else pool[random.int(MAX_POOL)] = input;
    if (!isGiven) discoveries.push(input);
  }
  return { cases, outcomes: outcomes.size, discoveries, finding: undefined };
}

/** Undefined if the case is fine. */
export async function errorOf(target: Target, input: Case): Promise<unknown> {
  try {
    await target.run(input);
    return undefined;
  } catch (error) {
    return error ?? new Error("threw nothing");
  }
}

function nextCase(target: Target, pool: readonly Case[], random: Random): Case {
  if (pool.length === 0 || random.oneIn(2)) {
    const made = target.generate(random);
    return random.oneIn(3) ? mutate(made, pool.length === 0 ? made : random.pick(pool), random) : made;
  }
  return mutate(random.pick(pool), random.pick(pool), random);
}

function sizeOf(input: Case): number {
  if (typeof input === "string" || Buffer.isBuffer(input)) return input.length;
  if (typeof input !== "object" || input === null) return 1;
  let size = 0;
  for (const inner of Object.values(input)) size += sizeOf(inner);
  return size;
}

/** The fault without what depends on the case: numbers and what is quoted. */
function kindOf(error: unknown): string {
  if (error === undefined) return "";
  if (!(error instanceof Finding)) return error instanceof Error ? `${error.name} ${firstFrame(error)}` : "other";
  return error.message.split(/[:{["'`]/, 1)[0]?.replace(/\d+/g, "n") ?? "";
}

function firstFrame(error: Error): string {
  return error.stack?.split("\n").find((line) => line.trimStart().startsWith("at ")) ?? error.message;
}

function messageOf(error: unknown): string {
  return error instanceof Finding ? error.message : error instanceof Error ? (error.stack ?? error.message) : "threw";
}
