/**
 * `gwctl record` saves requests of a gateway to a file. `gwctl replay` sends them to a gateway and compares the
 * statuses, and with `--policies` also the routes and policy results.
 */
import { randomBytes } from "node:crypto";
import { closeSync, openSync, readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { writeFully } from "../../base/files.ts";
import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { isSameHeader, MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { readJson } from "../../json/read-json.ts";
import { lineReader } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { MESSAGE_CHARS, table } from "../terminal/table.ts";
import { CliError, type Paint, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { httpUrl } from "./curl-arguments.ts";
import { openTarget } from "./open-target.ts";

const RECORDING = peerInput("file/recording");
const RECORDED_REQUEST = peerInput("file/recorded-request");

export interface ReplayFlags extends TargetFlags {
  readonly to: string;
  readonly speed: string;
  readonly concurrency: string;
  readonly methods: string;
  readonly header?: readonly string[];
  readonly policies?: boolean;
  readonly output?: string;
}

export async function replay(file: string, flags: ReplayFlags, terminal: Terminal): Promise<void> {
  const speed = flags.speed === "max" ? undefined : numberOf("--speed", flags.speed, 0.01, 1000);
  const concurrency = numberOf("--concurrency", flags.concurrency, 1, 256);
  const format = formatOf(flags.output, FORMATS);
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
  const recorded = flags.policies ? await recordedBy(flags, terminal, prefix) : undefined;
  const report = comparison(replayed, recorded, lines.length - sent.length);
  if (isData(format)) printData(report, format, terminal);
  else terminal.out(printable(replayText(report, paintOf(terminal))));
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
  return readLines(RECORDING, text).flatMap((line, index) => readLine(line, `${file}:${index + 1}`) ?? []);
}

async function recordedBy(flags: ReplayFlags, terminal: Terminal, prefix: string): Promise<Map<string, RecordedLine>> {
  const { admin } = await openTarget(undefined, flags, terminal);
  try {
    const text = (await admin.get(ADMIN_PATHS.recording)).body.toString("utf8");
    const records = readLines(RECORDING, text).flatMap((line) => readLine(line, "the gateway's recording") ?? []);
    return new Map(records.filter(({ id }) => id.startsWith(prefix)).map((record) => [record.id, record]));
  } finally {
    admin.close();
  }
}

function targetOf(text: string): URL {
  const url = new URL(httpUrl("--to", text));
  if (url.pathname !== "/" || url.search !== "")
    throw usageError(`invalid --to ${text}: expected http://host:port or https://host:port`);
  return url;
}

function headerOf(text: string): readonly [string, string] {
  const colon = text.indexOf(":");
  if (colon < 1) throw usageError(`invalid --header ${text.slice(0, 20)}…: expected "name: value"`);
  return [text.slice(0, colon).trim().toLowerCase(), text.slice(colon + 1).trim()];
}

export interface Replayed {
  readonly line: RecordedLine;
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
  readonly example: readonly [string, string];
}

export interface ReplayReport {
  readonly sent: number;
  readonly same: number;
  readonly differing: number;
  readonly leftOut: number;
  readonly differences: readonly Difference[];
}

export function comparison(
  replayed: readonly Replayed[],
  recorded: ReadonlyMap<string, RecordedLine> | undefined,
  leftOut: number,
): ReplayReport {
  const differences = new Map<string, Difference>();
  let same = 0;
  for (const one of replayed) {
    const found = differencesOf(one, recorded?.get(one.id));
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

function differencesOf({ line, status, error }: Replayed, recorded: RecordedLine | undefined): Found[] {
  if (error !== undefined) return [["failed", String(line.status), error]];
  const found: Found[] = [];
  if (line.status !== status)
    found.push(["status", withCode(line.status, line.code), withCode(status, recorded?.code)]);
  if (recorded === undefined) return found;
  if (recorded.route !== line.route) found.push(["route", line.route ?? "(none)", recorded.route ?? "(none)"]);
  const [before, after] = [line.policies.join(", "), recorded.policies.join(", ")];
  if (before !== after) found.push(["policies", before, after]);
  return found;
}

function withCode(status: number | null, code: string | null | undefined): string {
  return code ? `${status} ${code}` : String(status);
}

const SHOWN = 50;

export function replayText({ sent, same, leftOut, differences }: ReplayReport, paint: Paint): string {
  const left = leftOut === 0 ? "" : `; ${leftOut} left out (--methods)`;
  const summary = `${sent} requests sent, ${same} matched the recording${left}\n`;
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

const NOT_SENT: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  "expect",
  "host",
  "x-request-id",
  "traceparent",
  "tracestate",
]);
const TIMEOUT_MS = 60_000;
const REDACTED = "<redacted>";

export interface Sender {
  send(line: RecordedLine, id: string): Promise<{ status: number | null; error?: string }>;
  close(): void;
}

export function createSender(target: URL, added: readonly (readonly [string, string])[]): Sender {
  const isTls = target.protocol === "https:";
  const agent = isTls ? new TlsAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
  return {
    send: (line, id) =>
      new Promise((resolve) => {
        const path = `${line.path}${line.query === "" ? "" : `?${line.query}`}`;
        const options = { agent, method: line.method, path, headers: headersOf(line, id, added), timeout: TIMEOUT_MS };
        try {
          const sent = (isTls ? tlsRequest : request)(target, options, (response) => {
            response.resume();
            response.on("end", () => resolve({ status: response.statusCode ?? null }));
            response.on("error", (error) => resolve({ status: null, error: error.message }));
          });
          sent.on("timeout", () => sent.destroy(new Error(`no response within ${TIMEOUT_MS / 1000} s`)));
          sent.on("error", (error) => resolve({ status: null, error: error.message }));
          sent.end();
        } catch (error) {
          // Node.js throws if the path or a header contains invalid characters.
          resolve({ status: null, error: (error as Error).message });
        }
      }),
    close: () => agent.destroy(),
  };
}

function headersOf(line: RecordedLine, id: string, added: readonly (readonly [string, string])[]): string[] {
  const headers: string[] = ["host", line.host, "x-request-id", id];
  for (let i = 0; i + 1 < line.headers.length; i += 2) {
    const name = line.headers[i] as string;
    const value = line.headers[i + 1] as string;
    if (NOT_SENT.has(name) || value.includes(REDACTED)) continue;
    if (added.some(([own]) => isSameHeader(own, name))) continue;
    headers.push(name, value);
  }
  for (const [name, value] of added) headers.push(name, value);
  return headers;
}

export interface RecordFlags extends TargetFlags {
  readonly output: string;
  readonly count: string;
  readonly sample: string;
  readonly seconds?: string;
  readonly last?: boolean;
}

const MAX_RECORDING_BYTES = 256 * 1024 * 1024;

export async function record(name: string | undefined, flags: RecordFlags, terminal: Terminal): Promise<void> {
  const count = numberOf("--count", flags.count, 1, 1_000_000);
  const sample = numberOf("--sample", flags.sample, 0, 1);
  const seconds = flags.seconds === undefined ? undefined : numberOf("--seconds", flags.seconds, 1, 86_400);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const file = openFile(flags.output);
    let written = 0;
    let bytes = 0;
    let stop: () => void = () => undefined;
    const take = (line: string): void => {
      if (line.trim() === "" || written >= count || bytes >= MAX_RECORDING_BYTES) return;
      if (sample < 1 && Math.random() >= sample) return;
      writeFully(file, `${line}\n`);
      bytes += Buffer.byteLength(line) + 1;
      written += 1;
      if (written >= count || bytes >= MAX_RECORDING_BYTES) stop();
    };
    try {
      const stream = await admin.stream(
        `${ADMIN_PATHS.recording}${flags.last ? "" : "?follow=true"}`,
        lineReader(take),
      );
      stop = stream.stop;
      if (!flags.last) terminal.err(`recording to ${flags.output}; Ctrl-C to stop\n`);
      const timer = seconds === undefined ? undefined : terminal.clock.after(seconds * 1000, stream.stop);
      await stream.ended;
      timer?.cancel();
    } finally {
      closeSync(file);
    }
    terminal.err(`${written} requests recorded in ${flags.output}\n`);
  } finally {
    admin.close();
  }
}

export function numberOf(flag: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value < min || value > max)
    throw usageError(`invalid ${flag} ${text}: expected a number from ${min} to ${max}`);
  return value;
}

function openFile(path: string): number {
  try {
    return openSync(path, "w", 0o600);
  } catch (error) {
    throw new CliError(`cannot write ${path}: ${(error as Error).message}`);
  }
}

// A recording contains one `RecordedLine` as JSON per line.

export interface RecordedLine {
  readonly id: string;
  readonly at: number;
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly query: string;
  readonly route: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly policies: readonly string[];
  /** Names and values alternate. */
  readonly headers: readonly string[];
}

export function readLine(text: string, where: string): RecordedLine | undefined {
  if (text.trim() === "") return undefined;
  let value: Partial<RecordedLine> | null;
  try {
    value = readJson(RECORDED_REQUEST, text) as Partial<RecordedLine> | null;
  } catch {
    throw new CliError(`${where}: not JSON; is this a recording of gwctl record?`);
  }
  const isRecord =
    typeof value?.at === "number" &&
    typeof value.method === "string" &&
    typeof value.path === "string" &&
    value.path.startsWith("/") &&
    typeof value.query === "string" &&
    Array.isArray(value.headers) &&
    value.headers.every((part) => typeof part === "string") &&
    Array.isArray(value.policies);
  if (!isRecord) throw new CliError(`${where}: no recorded request; is this a recording of gwctl record?`);
  return value as RecordedLine;
}
