/**
 * Implements commands for the process of a running gateway: `gwctl proxy log` shows or sets the log filter, `gwctl
 * upgrade` replaces the running program, and `gwctl proxy profile cpu|heap` (spec 4.4) writes a profile for `go tool
 * pprof`.
 */

import { accessSync, constants, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { createFile, replaceFile } from "../../base/files.ts";
import { newForm } from "../../base/form.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { CliError, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

/** Every successful response starts with this prefix (spec 4.2). */
const CURRENT = "current log level is ";

export interface LogFlags extends TargetFlags {
  readonly level?: string;
  readonly set?: readonly string[];
  readonly output?: string;
}

export async function log(name: string | undefined, flags: LogFlags, terminal: Terminal): Promise<void> {
  if (flags.level !== undefined && flags.set !== undefined)
    throw usageError("use either --level (replaces the filter) or --set (changes parts of it)");
  const format = formatOf(flags.output, FORMATS);
  const show = (text: string): void => {
    if (isData(format)) printData({ level: text.slice(CURRENT.length).trim() }, format, terminal);
    else terminal.out(printable(text));
  };
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const before = (await admin.get(ADMIN_PATHS.logging)).body.toString();
    if (!before.startsWith(CURRENT))
      throw new CliError(`${admin.display} did not return its log level: is that a gateway's admin interface?`);
    const level = flags.level ?? (flags.set === undefined ? undefined : merged(before, flags.set));
    if (level === undefined) show(before);
    else {
      const query = newForm({ level });
      const response = await admin.post(`${ADMIN_PATHS.logging}?${query}`);
      show(response.body.toString());
    }
  } finally {
    admin.close();
  }
}

function merged(response: string, changes: readonly string[]): string {
  const current = response.slice(CURRENT.length).trim().split(",");
  const clauses = new Map(current.map((clause) => [clause.includes("=") ? clause.split("=", 1)[0] : "", clause]));
  for (const change of changes.flatMap((text) => text.split(","))) {
    const equals = change.indexOf("=");
    if (equals < 1) throw usageError(`--set ${change}: expected module=level, for example --set mcp=trace`);
    clauses.set(change.slice(0, equals), change);
  }
  return [...clauses.values()].join(",");
}

const UPGRADE_TIMEOUT_MS = 70_000;

export async function upgrade(name: string | undefined, flags: TargetFlags, terminal: Terminal): Promise<void> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const response = await admin.post(ADMIN_PATHS.upgrade, { timeoutMs: UPGRADE_TIMEOUT_MS });
    terminal.out(printable(response.body.toString()));
  } finally {
    admin.close();
  }
}

export const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 300;
const SLACK_MS = 15_000;
const GZIP = Buffer.of(0x1f, 0x8b);

export interface ProfileFlags extends TargetFlags {
  readonly seconds?: string;
  readonly output?: string;
}

export async function profile(
  kind: "cpu" | "heap",
  name: string | undefined,
  flags: ProfileFlags,
  terminal: Terminal,
): Promise<void> {
  const seconds = secondsOf(flags.seconds);
  checkOutputPath(flags.output);
  const { admin } = await openTarget(name, flags, terminal);
  const path = kind === "cpu" ? `${ADMIN_PATHS.cpuProfile}?seconds=${seconds}` : ADMIN_PATHS.heapProfile;
  const timeoutMs = (kind === "cpu" ? seconds * 1000 : 0) + SLACK_MS;
  try {
    if (kind === "cpu") terminal.err(`profiling ${admin.display} for ${seconds} s\n`);
    const { body } = await admin.get(path, { timeoutMs, showStatusOf: `${kind} profile` });
    if (body.length === 0) throw new CliError(`${kind} profile: the gateway sent an empty profile; see its log`);
    if (!body.subarray(0, 2).equals(GZIP))
      throw new CliError(`${admin.display} did not send a profile: is that a gateway's admin interface?`);
    const file = flags.output ?? `gwctl-${kind}-${timestamp(terminal.clock.now())}.pb.gz`;
    write(file, body, flags.output !== undefined);
    terminal.out(`Wrote ${kind} profile to ${file}\n`);
    terminal.err(`open it with: go tool pprof -http=: ${file}\n`);
  } finally {
    admin.close();
  }
}

function secondsOf(text: string | undefined): number {
  if (text === undefined) return DEFAULT_SECONDS;
  const seconds = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (seconds < 1 || seconds > MAX_SECONDS)
    throw usageError(`invalid --seconds ${text}; must be between 1 and ${MAX_SECONDS}`);
  return seconds;
}

/** Checks the path before profiling starts, because a profile that cannot be written is lost. */
function checkOutputPath(named: string | undefined): void {
  const file = named ?? ".";
  try {
    const found = statSync(file, { throwIfNoEntry: false });
    if (named !== undefined && found?.isDirectory()) throw new Error("it is a directory");
    accessSync(found ? file : dirname(resolve(file)), constants.W_OK);
  } catch (error) {
    throw new CliError(`cannot write ${file}: ${(error as Error).message}`);
  }
}

function write(file: string, body: Buffer, wasNamed: boolean): void {
  try {
    if (wasNamed) replaceFile(file, body);
    else createFile(file, body);
  } catch (error) {
    throw new CliError(`cannot write ${file}: ${(error as Error).message}`);
  }
}

/** Returns `YYYYMMDD-HHMMSS` in local time. */
function timestamp(now: number): string {
  const date = new Date(now);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}${two(date.getMonth() + 1)}${two(date.getDate())}`;
  return `${day}-${two(date.getHours())}${two(date.getMinutes())}${two(date.getSeconds())}`;
}
