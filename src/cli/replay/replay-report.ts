/**
 * What a replay found: how many answers are as recorded, and what differs, the same differences together.
 */
import type { Paint } from "../terminal/paint.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import type { RecordedLine } from "./recording.ts";

export interface Replayed {
  readonly line: RecordedLine;
  /** The request id of the replay. */
  readonly id: string;
  readonly status: number | null;
  readonly error?: string;
}

export interface Difference {
  readonly what: "status" | "route" | "policies" | "failed";
  readonly request: string;
  readonly recorded: string;
  readonly replayed: string;
  requests: number;
  /** The id of the recording, and that of the replay. */
  readonly example: readonly [string, string];
}

export interface ReplayReport {
  readonly sent: number;
  readonly same: number;
  readonly differing: number;
  /** Left out, because of their method. */
  readonly leftOut: number;
  readonly differences: readonly Difference[];
}

export function comparison(
  replayed: readonly Replayed[],
  told: ReadonlyMap<string, RecordedLine> | undefined,
  leftOut: number,
): ReplayReport {
  const differences = new Map<string, Difference>();
  let same = 0;
  for (const one of replayed) {
    const found = differencesOf(one, told?.get(one.id));
    if (found.length === 0) same += 1;
    for (const [what, recorded, got] of found) {
      const request = `${one.line.method} ${one.line.path}`;
      const key = JSON.stringify([what, request, recorded, got]);
      const known = differences.get(key);
      if (known) known.requests += 1;
      else
        differences.set(key, { what, request, recorded, replayed: got, requests: 1, example: [one.line.id, one.id] });
    }
  }
  return {
    sent: replayed.length,
    same,
    differing: replayed.length - same,
    leftOut,
    differences: [...differences.values()].sort((one, other) => other.requests - one.requests),
  };
}

type Found = readonly [what: Difference["what"], recorded: string, replayed: string];

function differencesOf({ line, status, error }: Replayed, told: RecordedLine | undefined): Found[] {
  if (error !== undefined) return [["failed", String(line.status), error]];
  const found: Found[] = [];
  if (line.status !== status) found.push(["status", withCode(line.status, line.code), withCode(status, told?.code)]);
  if (told === undefined) return found;
  if (told.route !== line.route) found.push(["route", line.route ?? "(none)", told.route ?? "(none)"]);
  const [before, after] = [line.policies.join(", "), told.policies.join(", ")];
  if (before !== after) found.push(["policies", before, after]);
  return found;
}

function withCode(status: number | null, code: string | null | undefined): string {
  return code ? `${status} ${code}` : String(status);
}

const SHOWN = 50;

export function replayText({ sent, same, leftOut, differences }: ReplayReport, paint: Paint): string {
  const left = leftOut === 0 ? "" : `; ${leftOut} left out (--methods)`;
  const summary = `${sent} requests sent, ${same} answered as recorded${left}\n`;
  if (differences.length === 0) return summary;
  const rows = differences
    .slice(0, SHOWN)
    .map(({ what, request, recorded, replayed, requests, example }) => [
      String(requests),
      what,
      example[1],
      request,
      recorded,
      replayed,
    ]);
  const head = ["REQUESTS", "WHAT", "EXAMPLE", "REQUEST", "RECORDED", "REPLAYED"];
  return `${table([head, ...rows], { paint, maxLastChars: MESSAGE_CHARS })}${summary}`;
}
