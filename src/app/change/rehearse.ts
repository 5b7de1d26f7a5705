/**
 * A rehearsal: a new configuration is compiled beside the old one, both with doors that lead nowhere, and both judge the
 * same recorded requests in the order in which they came, at the times at which they came. Nothing is sent.
 */
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { Clock } from "../../lib/process/clock.ts";
import { createDryRunner, type DryRunner } from "../../pipeline/dry-run/dry-run.ts";
import { recordedVerdict, walkRecorded } from "../../pipeline/dry-run/recorded-walk.ts";
import type { RecordedTraffic } from "../../pipeline/records/fact-ring.ts";
import { type DryConfig, openDryConfig } from "./dry-config.ts";
import type { Breathe } from "./pause.ts";
import { createRehearsalCount, type RehearsalReport } from "./rehearsal-report.ts";
import { valuesIn, withoutVariables } from "./rehearsal-variables.ts";

export interface RehearsalInput {
  /** Undefined: what was recorded is compared with. */
  readonly before: readonly SourceText[] | undefined;
  readonly after: readonly SourceText[];
  readonly environment: Environment;
  readonly allowMissingEnv?: boolean;
  /** Variables that were not looked up: their names stand for them. */
  readonly unnamed?: readonly string[];
}

export type Rehearsal =
  | { readonly ok: true; readonly report: RehearsalReport }
  | { readonly ok: false; readonly problems: readonly string[] };

/** `breathe` is awaited now and then, so that others get the thread or the processor; see `pause.ts`. */
export async function rehearse(
  input: RehearsalInput,
  traffic: RecordedTraffic,
  clock: Clock,
  breathe?: Breathe,
): Promise<Rehearsal> {
  const startedMs = clock.monotonicMs();
  const moving = movingClock(clock, traffic.firstAt ?? clock.now());
  const { environment, allowMissingEnv = false } = input;
  const open: DryConfig[] = [];
  const runnerOf = (sources: readonly SourceText[]): DryRunner | readonly string[] => {
    const dry = openDryConfig(sources, { environment, clock: moving.clock, allowMissingEnv });
    open.push(dry);
    const { prepared } = dry;
    return prepared.ok ? createDryRunner(prepared.topology, prepared.redaction, moving.clock) : prepared.problems;
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
      const pause = breathe?.();
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

/** What cannot be judged without bodies. */
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

/** The time of the requests; timers, which only bound a walk, are those of now. */
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
