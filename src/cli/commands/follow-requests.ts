/**
 * `gwctl requests --follow`: the last requests, then each one as it ends, until Ctrl-C or the gateway ends.
 */
import { StringDecoder } from "node:string_decoder";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../trace/request-record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import { CliError } from "../terminal/cli-error.ts";
import { paintOf } from "../terminal/paint.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { followHead, followRow } from "../views/requests-view.ts";

const DATA = "data:";

export interface FollowOptions {
  readonly limit: number;
  readonly isJson: boolean;
  isShown(record: RequestRecord): boolean;
}

export async function follow(admin: AdminClient, options: FollowOptions, terminal: Terminal): Promise<void> {
  const paint = paintOf(terminal);
  let lastSeq = -1;
  const show = (record: RequestRecord): void => {
    if (record.seq <= lastSeq) return;
    lastSeq = record.seq;
    if (!options.isShown(record)) return;
    terminal.out(options.isJson ? printable(`${JSON.stringify(record)}\n`) : followRow(record, paint));
  };
  // Followed before the past is read, so that nothing falls in between; what comes meanwhile waits.
  let early: RequestRecord[] | undefined = [];
  const lines = lineReader((line) => {
    if (!line.startsWith(DATA)) return;
    const record = recordOf(line.slice(DATA.length));
    if (early) early.push(record);
    else show(record);
  });
  const stream = await admin.stream(`${ADMIN_PATHS.requests}?follow=true`, lines);
  const past = await admin.json<{ requests: RequestRecord[] }>(
    `${ADMIN_PATHS.requests}?limit=${options.limit}`,
    "requests",
  );
  if (!options.isJson) terminal.out(followHead(paint));
  for (const record of [...past.requests].reverse()) show(record);
  for (const record of early) show(record);
  early = undefined;
  terminal.err("following; Ctrl-C to stop\n");
  await stream.ended;
  throw new CliError("the gateway closed the connection: is it still running?");
}

function lineReader(onLine: (line: string) => void): (chunk: Buffer) => void {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  return (chunk) => {
    const lines = (rest + decoder.write(chunk)).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  };
}

function recordOf(text: string): RequestRecord {
  try {
    return JSON.parse(text) as RequestRecord;
  } catch {
    throw new CliError(
      "the gateway sent something that is not a request: do gwctl and the gateway have the same version?",
    );
  }
}
