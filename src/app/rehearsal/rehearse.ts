/**
 * Replays recorded requests as dry runs against the old and the new configuration, with their original timestamps, and
 * compares the results.
 */

import type { Clock } from "../../base/clock.ts";
import { type DryConfig, dryRunnerOf, openDryConfig } from "../../config/dry-config.ts";
import type { SourceText } from "../../config/load/load.ts";
import { type Environment, markPlaceholders } from "../../config/text/env.ts";
import { type DryRunner, recordedVerdict, walkRecorded } from "../../pipeline/dry-run/dry-run.ts";
import type { RecordedTraffic } from "../../record/recorded-request.ts";
import type { VariableValue } from "../../record/trace/redact.ts";
import { createRehearsalCount, type RehearsalReport } from "./rehearsal-report.ts";

export interface RehearsalInput {
  /** If undefined, the new configuration is compared with the recorded results. */
  readonly before: readonly SourceText[] | undefined;
  readonly after: readonly SourceText[];
  readonly environment: Environment;
  readonly allowMissingEnv?: boolean;
  /** Only the new configuration uses these variables, so their names are used as their values. */
  readonly unnamed?: readonly string[];
}

export type Rehearsal =
  | { readonly ok: true; readonly report: RehearsalReport }
  | { readonly ok: false; readonly problems: readonly string[] };

export async function rehearse(
  input: RehearsalInput,
  traffic: RecordedTraffic,
  clock: Clock,
  yieldThread?: YieldThread,
): Promise<Rehearsal> {
  const startedMs = clock.monotonicMs();
  const moving = movingClock(clock, traffic.firstAt ?? clock.now());
  const { environment, allowMissingEnv = false } = input;
  const open: DryConfig[] = [];
  const runnerOf = (sources: readonly SourceText[]): DryRunner | readonly string[] => {
    const dry = openDryConfig(sources, { environment, clock: moving.clock, allowMissingEnv });
    open.push(dry);
    const { prepared } = dry;
    return prepared.ok ? dryRunnerOf(prepared, moving.clock) : prepared.problems;
  };
  try {
    const after = runnerOf(input.after);
    if (!("run" in after)) return { ok: false, problems: [...after, ...noteOnVariables(input)] };
    const before = input.before && runnerOf(input.before);
    if (before && !("run" in before))
      return { ok: false, problems: before.map((problem) => `the configuration to compare with: ${problem}`) };
    const { redaction } = after;
    const count = createRehearsalCount((name) => redaction.isSensitive(name));
    for (const recorded of traffic) {
      moving.moveTo(recorded.at);
      const old = before ? walkRecorded(recorded, before) : recordedVerdict(recorded);
      const was = old instanceof Promise ? await old : old;
      const is = walkRecorded(recorded, after);
      count.add(recorded, was, is instanceof Promise ? await is : is);
      const pause = yieldThread?.();
      if (pause) await pause;
    }
    const report = count.report(clock.monotonicMs() - startedMs, notesOn(input));
    return {
      ok: true,
      report: withoutVariables(report, valuesIn([...input.after, ...(input.before ?? [])], environment)),
    };
  } finally {
    for (const { close } of open) close();
  }
}

function notesOn(input: RehearsalInput): string[] {
  const { after, before } = input;
  const texts = [...after, ...(before ?? [])].map(({ text }) => text).join("\n");
  const notes = noteOnVariables(input);
  if (/mcp\.tool\.arguments|request\.body|llm\.prompt/.test(texts))
    notes.push(
      "rules that read arguments or bodies cannot be judged, because bodies are not recorded: they count as not satisfied",
    );
  if (before === undefined)
    notes.push("compared with what was recorded: headers and answers of the gateway are not compared");
  if (/\bextAuthz\b/.test(texts)) notes.push("an external authorization service is not asked and counts as agreeing");
  if (/\bglobal:/.test(texts)) notes.push("a rate limit service is not asked and counts as agreeing");
  return notes;
}

function noteOnVariables({ unnamed = [] }: RehearsalInput): string[] {
  if (unnamed.length === 0) return [];
  return [
    `the running configuration does not name these variables, so their names stand for their values: ${unnamed.join(", ")}`,
  ];
}

/** The time is that of the recorded request. Timers use the real clock, because they only bound a dry run. */
function movingClock(clock: Clock, firstMs: number): { readonly clock: Clock; moveTo(ms: number): void } {
  let nowMs = firstMs;
  return {
    clock: {
      now: () => nowMs,
      monotonicMs: () => nowMs - firstMs,
      after: (delayMs, callback) => clock.after(delayMs, callback),
      every: (intervalMs, callback) => clock.every(intervalMs, callback),
    },
    moveTo(ms) {
      nowMs = ms;
    },
  };
}

// A client of the admin interface chooses the new configuration, and must not be able to read the gateway's environment
// with it.

/** Shorter values could match words of the report itself. */
const MIN_HIDDEN_CHARS = 4;

/** Sets variables that only `after` uses to their own names. */
export function variablesForRehearsal(
  before: readonly SourceText[],
  after: readonly SourceText[],
  environment: Environment,
): { readonly environment: Environment; readonly unnamed: readonly string[] } {
  const named = namesIn(before);
  const unnamed = [...namesIn(after)].filter((name) => !named.has(name) && environment[name] !== undefined);
  return { environment: { ...environment, ...Object.fromEntries(unnamed.map((name) => [name, name])) }, unnamed };
}

export function valuesIn(sources: readonly SourceText[], environment: Environment): readonly VariableValue[] {
  const values = [...namesIn(sources)].flatMap((name) => {
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    return value === undefined || value.length < MIN_HIDDEN_CHARS || value === name ? [] : [{ name, value }];
  });
  // A value can contain another one, so longer values are replaced first.
  return values.sort((one, other) => other.value.length - one.value.length);
}

export function withoutVariables<Value>(value: Value, variables: readonly VariableValue[]): Value {
  if (variables.length === 0) return value;
  const hiders = variables.flatMap(({ name, value: secret }) =>
    [...new Set([secret, JSON.stringify(secret).slice(1, -1)])].map((text) => hider(name, text)),
  );
  const hidden = (one: unknown): unknown => {
    if (typeof one === "string") return hiders.reduce((text, hide) => hide(text), one);
    if (Array.isArray(one)) return one.map(hidden);
    if (typeof one !== "object" || one === null) return one;
    return Object.fromEntries(Object.entries(one).map(([key, inner]) => [key, hidden(inner)]));
  };
  return hidden(value) as Value;
}

/**
 * Ignores case, because header names are lowercase. Also hides the start of a value at the end of a truncated string.
 */
function hider(name: string, secret: string): (text: string) => string {
  const shown = `\${${name}}`;
  const lower = secret.toLowerCase();
  return (text) => {
    const replaced = replaceAnyCase(text, secret, shown);
    const end = replaced.toLowerCase();
    for (let length = Math.min(lower.length - 1, end.length); length >= MIN_HIDDEN_CHARS; length--)
      if (end.endsWith(lower.slice(0, length))) return `${replaced.slice(0, -length)}${shown}`;
    return replaced;
  };
}

function replaceAnyCase(text: string, searched: string, replacement: string): string {
  const [within, wanted] = [foldCase(text), foldCase(searched)];
  let result = "";
  let copied = 0;
  for (let at = within.indexOf(wanted); at >= 0 && wanted !== ""; at = within.indexOf(wanted, copied)) {
    result += text.slice(copied, at) + replacement;
    copied = at + wanted.length;
  }
  return result + text.slice(copied);
}

/** Keeps the length, which `toLowerCase` changes for a few characters. A sigma at the end of a word has another form. */
function foldCase(text: string): string {
  const lower = text.toLowerCase();
  if (lower.length === text.length) return lower.replaceAll("ς", "σ");
  return text.replace(/./gsu, (character) => {
    const folded = character.toLowerCase();
    return folded.length === character.length ? folded : character;
  });
}

function namesIn(sources: readonly SourceText[]): Set<string> {
  const names = sources.flatMap(({ text }) =>
    markPlaceholders(text).placeholders.flatMap((one) => (one.kind === "variable" ? [one.name] : [])),
  );
  return new Set(names);
}

/** The clock is read only after this many work items. */
const ITEMS_PER_CHECK = 8;

/** Called after each work item. Returns a promise at the end of a time slice. */
export type YieldThread = () => Promise<void> | undefined;

export function createPause(clock: Clock, workMs: number, yieldToLoop: () => Promise<void>): YieldThread {
  let items = 0;
  let startedMs = clock.monotonicMs();
  return () => {
    items += 1;
    if (items < ITEMS_PER_CHECK) return undefined;
    items = 0;
    if (clock.monotonicMs() - startedMs < workMs) return undefined;
    return yieldToLoop().then(() => {
      startedMs = clock.monotonicMs();
    });
  };
}
