/**
 * `gwctl top`: the busiest routes, tools, models and keys of the last minute, again and again until Ctrl-C. It asks for the
 * newest requests at each look and knows from their numbers how many there were, so a busy gateway pays no more for it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../trace/request-record.ts";
import { openTarget } from "../commands/open-target.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { usageError } from "../terminal/cli-error.ts";
import { paintOf } from "../terminal/paint.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { type Look, TOP_KINDS, type TopKind, topRows, topText } from "../views/top-view.ts";
import { ageText } from "../views/units.ts";

export interface TopFlags extends TargetFlags {
  readonly by?: string;
  readonly interval?: string;
  readonly once?: boolean;
  readonly output?: string;
}

/** As many as the gateway tells at once. */
const RECORDS = 500;
const WINDOW_MS = 60_000;
const MIN_WINDOW_MS = 1_000;
const ROWS_OF_ALL = 6;
const ROWS_OF_ONE = 30;
/** From the first column of the first line; the rest of the screen is wiped. */
const CLEAR_SCREEN = "\u001b[H\u001b[2J\u001b[3J";

export async function top(name: string | undefined, flags: TopFlags, terminal: Terminal): Promise<void> {
  const kinds = kindsOf(flags.by);
  const intervalMs = 1_000 * secondsOf(flags.interval ?? "2");
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  const isJson = flags.output === "json";
  try {
    const watch = createWatch(admin);
    for (;;) {
      const nowMs = terminal.clock.now();
      const { looks, windowMs, isSampled } = await watch.look(nowMs);
      if (isJson) terminal.out(printable(`${JSON.stringify(jsonOf(looks, kinds, windowMs))}\n`));
      else {
        const rows = kinds.length === 1 ? ROWS_OF_ONE : ROWS_OF_ALL;
        const note = isSampled ? ", estimated from a sample" : "";
        const head = `${admin.display}  last ${ageText(windowMs)}${note}${flags.once ? "" : "  Ctrl-C to stop"}\n\n`;
        const screen = head + topText(looks, kinds, windowMs, rows, paintOf(terminal));
        terminal.out(terminal.isInteractive && !flags.once ? CLEAR_SCREEN + screen : screen);
      }
      if (flags.once) return;
      // Not on the clock of the terminal, whose timers let the process end.
      await sleep(intervalMs);
    }
  } finally {
    admin.close();
  }
}

interface Watch {
  look(nowMs: number): Promise<{ looks: readonly Look[]; windowMs: number; isSampled: boolean }>;
}

function createWatch(admin: AdminClient): Watch {
  let looks: Look[] = [];
  let lastSeq: number | undefined;

  async function newest(): Promise<RequestRecord[]> {
    const since = lastSeq === undefined ? "" : `&since=${lastSeq}`;
    const answer = await admin.json<{ requests: RequestRecord[] }>(
      `${ADMIN_PATHS.requests}?limit=${RECORDS}${since}`,
      "requests",
    );
    return answer.requests;
  }

  return {
    async look(nowMs) {
      let records = await newest();
      if (records.length === 0 && lastSeq !== undefined && (await isRestarted(admin, lastSeq))) {
        lastSeq = undefined;
        looks = [];
        records = await newest();
      }
      const first = lastSeq;
      const last = records[0]?.seq;
      // Numbers go up by one per request: what is between two looks is known even where only the newest are told.
      const count = first === undefined || last === undefined ? records.length : last - first;
      lastSeq = last ?? lastSeq;
      const recent = records.filter(({ time }) => Date.parse(time) > nowMs - WINDOW_MS);
      const weight = records.length === 0 ? 1 : Math.max(1, count / records.length);
      looks = [...looks, { atMs: nowMs, weight, records: recent }].filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
      const oldest = looks.reduce(
        (least, look) => look.records.reduce((before, { time }) => Math.min(before, Date.parse(time)), least),
        nowMs,
      );
      const windowMs = Math.min(WINDOW_MS, Math.max(MIN_WINDOW_MS, nowMs - oldest));
      return { looks, windowMs, isSampled: looks.some((look) => look.weight > 1) };
    },
  };
}

/** A new process counts from the beginning. */
async function isRestarted(admin: AdminClient, lastSeq: number): Promise<boolean> {
  const { requests } = await admin.json<{ requests: RequestRecord[] }>(`${ADMIN_PATHS.requests}?limit=1`, "requests");
  return (requests[0]?.seq ?? -1) < lastSeq;
}

function jsonOf(looks: readonly Look[], kinds: readonly TopKind[], windowMs: number): object {
  return { windowMs, ...Object.fromEntries(kinds.map((kind) => [kind, topRows(looks, kind, windowMs)])) };
}

function kindsOf(by: string | undefined): readonly TopKind[] {
  if (by === undefined) return TOP_KINDS;
  const found = TOP_KINDS.find((kind) => kind === by);
  if (found === undefined) throw usageError(`invalid --by ${by}: expected ${TOP_KINDS.join(", ")}`);
  return [found];
}

function secondsOf(text: string): number {
  const seconds = Number(text);
  if (!Number.isFinite(seconds) || seconds < 0.5 || seconds > 60)
    throw usageError(`invalid --interval ${text}: expected seconds from 0.5 to 60`);
  return seconds;
}
