/**
 * Reads trace events from the `/debug/trace` stream of a gateway or from a saved trace, which contains JSON lines or
 * the text of the stream.
 */
import { readFileSync, statSync } from "node:fs";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { newForm } from "../../base/form.ts";
import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { safeJson } from "../../json/safe-json.ts";
import type { TraceEvent } from "../../record/trace/record.ts";
import { type AdminClient, type AdminStream, lineReader } from "../instance/admin-client.ts";
import { CliError, type Terminal } from "../terminal/terminal.ts";

const TRACE = peerInput("gateway/trace");
const EVENT = peerInput("gateway/trace-event");

const MAX_FILE_BYTES = 64 * 1024 * 1024;
const DATA = "data:";

export interface TraceListener {
  armed(): void;
  event(event: TraceEvent): void;
  /** Called when the gateway dropped events because this client was too slow. */
  dropped(note: string): void;
}

export async function openTrace(
  admin: AdminClient,
  options: { readonly expression?: string; readonly count?: number },
  listener: TraceListener,
): Promise<AdminStream> {
  const query = newForm();
  if (options.expression !== undefined) query.set("expression", options.expression);
  if (options.count !== undefined) query.set("count", String(options.count));
  const path = query.size === 0 ? ADMIN_PATHS.trace : `${ADMIN_PATHS.trace}?${query}`;
  const read = lineReader((line) => {
    if (line.startsWith(": armed")) listener.armed();
    else if (line.startsWith(": dropped")) listener.dropped(line.slice(2));
    else if (line.startsWith(DATA)) listener.event(parseEvent(line.slice(DATA.length)));
  });
  return admin.stream(path, read);
}

export function readTraceFile(path: string, terminal: Terminal): TraceEvent[] {
  let text: string;
  try {
    if (path !== "-" && statSync(path).size > MAX_FILE_BYTES) throw new CliError(`${path} is larger than 64 MiB`);
    text = path === "-" ? terminal.readStdin() : readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(`cannot read ${path}: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`);
  }
  const events = readLines(TRACE, text)
    .map((line) => (line.startsWith(DATA) ? line.slice(DATA.length) : line).trim())
    .filter((line) => line !== "" && !line.startsWith(":"))
    .map(parseEvent);
  if (events.length === 0) throw new CliError(`${path} has no trace events: save one with \`gwctl proxy trace --raw\``);
  return events;
}

function parseEvent(text: string): TraceEvent {
  let value: unknown;
  try {
    value = readJson(EVENT, text);
  } catch {
    throw new CliError(`not a trace event: ${text.trim().slice(0, 60)}`);
  }
  const { message, eventEnd } = (value ?? {}) as { message?: { type?: unknown }; eventEnd?: unknown };
  if (typeof message?.type !== "string" || typeof eventEnd !== "number")
    throw new CliError(`not a trace event: ${text.trim().slice(0, 60)}`);
  return value as TraceEvent;
}

export function rawLine(event: TraceEvent): string {
  return `${safeJson(event)}\n`;
}

export interface TraceView {
  event(event: TraceEvent): void;
  status(text: string): void;
  /** Resolves when the user quits. Never resolves for the plain list. */
  readonly closed: Promise<void>;
}
