/**
 * Names of a running gateway, for shell completion: request ids, MCP backends, keys of limits. Says nothing if there is
 * no gateway: whoever presses Tab does not want to read about it.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../observe/trace/request-record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, type Terminal } from "../terminal/terminal.ts";
import { type Fields, listOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

const MAX_NAMES = 100;
/** A shell evaluates what it completes: names with anything else in them are left out. */
const SAFE_NAME = /^[A-Za-z0-9][A-Za-z0-9._:/@=-]*$/;

const READERS: Readonly<Record<string, (admin: AdminClient) => Promise<string[]>>> = {
  requests: async (admin) => {
    const path = `${ADMIN_PATHS.requests}?limit=${MAX_NAMES}`;
    return (await admin.json<{ requests: RequestRecord[] }>(path, "requests")).requests.map(({ id }) => id);
  },
  backends: async (admin) =>
    listOf((await admin.json<Fields>(ADMIN_PATHS.configDump, "backends")).backends)
      .filter(({ type }) => type === "mcp")
      .map(({ name }) => String(name)),
  keys: async (admin) =>
    listOf((await admin.json<Fields>(ADMIN_PATHS.limits, "rules")).rules).flatMap((rule) =>
      listOf(rule.buckets).map(({ key }) => String(key)),
    ),
};

export async function liveNames(kind: string, flags: TargetFlags, terminal: Terminal): Promise<void> {
  const read = READERS[kind];
  if (read === undefined) return;
  try {
    const { admin } = await openTarget(undefined, { ...flags, local: true }, terminal);
    try {
      const names = [...new Set(await read(admin))].filter((name) => SAFE_NAME.test(name)).slice(0, MAX_NAMES);
      terminal.out(names.map((name) => `${name}\n`).join(""));
    } finally {
      admin.close();
    }
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
  }
}
