/**
 * `gwctl record`: requests of a gateway, as they end or those it remembers, into a file: without bodies and credentials,
 * sampled, and bounded in number, time and size.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

export interface RecordFlags extends TargetFlags {
  readonly output: string;
  readonly count: string;
  readonly sample: string;
  readonly seconds?: string;
  readonly last?: boolean;
}

/** A recording is for reading and replaying: larger ones are sampled. */
const MAX_RECORDING_BYTES = 256 * 1024 * 1024;

export async function record(name: string | undefined, flags: RecordFlags, terminal: Terminal): Promise<void> {
  const count = numberOf("--count", flags.count, 1, 1_000_000);
  const sample = numberOf("--sample", flags.sample, 0, 1);
  const seconds = flags.seconds === undefined ? undefined : numberOf("--seconds", flags.seconds, 1, 86_400);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    // Others on this machine need not see who asked for what.
    const file = openFile(flags.output);
    let written = 0;
    let bytes = 0;
    let stop: () => void = () => undefined;
    const take = (line: string): void => {
      if (line.trim() === "" || written >= count || bytes >= MAX_RECORDING_BYTES) return;
      if (sample < 1 && Math.random() >= sample) return;
      bytes += writeSync(file, `${line}\n`);
      written += 1;
      if (written >= count || bytes >= MAX_RECORDING_BYTES) stop();
    };
    try {
      const stream = await admin.stream(`${ADMIN_PATHS.recording}${flags.last ? "" : "?follow=true"}`, lines(take));
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

function lines(onLine: (line: string) => void): (chunk: Buffer) => void {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  return (chunk) => {
    const parts = (rest + decoder.write(chunk)).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) onLine(part);
  };
}

/**
 * A line of a recording, as `gwctl record` writes it and `gwctl replay` reads it: what was sent without body and
 * credentials, and how it ended.
 */

export interface RecordedLine {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly query: string;
  readonly route: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly policies: readonly string[];
  /** name, value, name, value, … */
  readonly headers: readonly string[];
}

/** Undefined for an empty line. */
export function readLine(text: string, where: string): RecordedLine | undefined {
  if (text.trim() === "") return undefined;
  let value: Partial<RecordedLine> | null;
  try {
    value = JSON.parse(text) as Partial<RecordedLine> | null;
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
