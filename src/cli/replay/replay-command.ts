/**
 * `gwctl replay`: sends the requests of a recording to a gateway, at their pace or another, and compares what it answers with
 * what was recorded: statuses, and with `--policies` routes and verdicts, which the gateway's own recording tells. Credentials
 * are not in a recording: `--header` adds one.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { openTarget } from "../commands/open-target.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, usageError } from "../terminal/cli-error.ts";
import { paintOf } from "../terminal/paint.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { numberOf } from "./record-command.ts";
import { type RecordedLine, readLine } from "./recording.ts";
import { comparison, type Replayed, replayText } from "./replay-report.ts";
import { createSender } from "./send-recorded.ts";

export interface ReplayFlags extends TargetFlags {
  readonly to: string;
  readonly speed: string;
  readonly concurrency: string;
  readonly methods: string;
  readonly header?: readonly string[];
  readonly policies?: boolean;
  readonly output?: string;
}

/** Throws, for exit code 1, if an answer differs. */
export async function replay(file: string, flags: ReplayFlags, terminal: Terminal): Promise<void> {
  const speed = flags.speed === "max" ? undefined : numberOf("--speed", flags.speed, 0.01, 1000);
  const concurrency = numberOf("--concurrency", flags.concurrency, 1, 256);
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const target = targetOf(flags.to);
  const added = (flags.header ?? []).map(headerOf);
  const methods = new Set(flags.methods.toUpperCase().split(","));
  const lines = readRecording(file).sort((one, other) => one.at - other.at);
  const sent = lines.filter(({ method }) => methods.has(method.toUpperCase()));
  if (sent.length === 0) throw new CliError(`${file}: no requests to replay; methods: ${flags.methods}`);

  const sender = createSender(target, added);
  const prefix = `replay-${randomBytes(4).toString("hex")}-`;
  const replayed: Replayed[] = [];
  const { clock } = terminal;
  const startedMs = clock.monotonicMs();
  const firstAt = sent[0]?.at ?? 0;
  let next = 0;
  const work = async (): Promise<void> => {
    for (;;) {
      const index = next++;
      const line = sent[index];
      if (line === undefined) return;
      if (speed !== undefined) {
        const waitMs = (line.at - firstAt) / speed - (clock.monotonicMs() - startedMs);
        if (waitMs > 0) await new Promise<void>((resolve) => clock.after(waitMs, resolve));
      }
      const id = `${prefix}${index}`;
      replayed.push({ line, id, ...(await sender.send(line, id)) });
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(concurrency, sent.length) }, work));
  } finally {
    sender.close();
  }
  const told = flags.policies ? await toldBy(flags, terminal, prefix) : undefined;
  const report = comparison(replayed, told, lines.length - sent.length);
  terminal.out(
    flags.output === "json"
      ? printable(`${JSON.stringify(report, null, 2)}\n`)
      : printable(replayText(report, paintOf(terminal))),
  );
  if (report.differing > 0)
    throw new CliError(`${report.differing} of ${report.sent} answers differ from the recording`);
}

function readRecording(file: string): RecordedLine[] {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
  return text.split("\n").flatMap((line, index) => readLine(line, `${file}:${index + 1}`) ?? []);
}

/** What the gateway itself recorded of these requests. */
async function toldBy(flags: ReplayFlags, terminal: Terminal, prefix: string): Promise<Map<string, RecordedLine>> {
  const { admin } = await openTarget(undefined, flags, terminal);
  try {
    const text = (await admin.get(ADMIN_PATHS.recording)).body.toString("utf8");
    const records = text.split("\n").flatMap((line) => readLine(line, "the gateway's recording") ?? []);
    return new Map(records.filter(({ id }) => id.startsWith(prefix)).map((record) => [record.id, record]));
  } finally {
    admin.close();
  }
}

function targetOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.pathname !== "/" || url.search !== "")
    throw usageError(`invalid --to ${text}: expected http://host:port or https://host:port`);
  return url;
}

function headerOf(text: string): readonly [string, string] {
  const colon = text.indexOf(":");
  if (colon < 1) throw usageError(`invalid --header ${text.slice(0, 20)}…: expected "name: value"`);
  return [text.slice(0, colon).trim().toLowerCase(), text.slice(colon + 1).trim()];
}
