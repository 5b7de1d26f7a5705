/**
 * `gwctl proxy targets`: the MCP servers behind a gateway, which of them are down, why, and what they last wrote.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { usageError } from "../terminal/cli-error.ts";
import { table } from "../terminal/table.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import type { ConfigDump } from "./config-command.ts";
import { openTarget } from "./open-target.ts";

export interface TargetsFlags extends TargetFlags {
  readonly output?: string;
}

interface Task {
  readonly kind: string;
  readonly name: string;
  readonly detail?: Fields;
  readonly children?: readonly Task[];
}

type Fields = Readonly<Record<string, unknown>>;

interface McpTarget {
  readonly backend: string;
  readonly target: string;
  readonly state: "up" | "failing" | "idle";
  /** Sessions in which it is up. */
  readonly sessions: number;
  readonly lastError?: string;
  readonly agoMs?: number;
  readonly stderr: readonly string[];
}

/** How to fix a failure is often at the end of its reason. */
const MAX_ERROR_CHARS = 300;

export async function targets(name: string | undefined, flags: TargetsFlags, terminal: Terminal): Promise<void> {
  if (flags.output !== undefined && flags.output !== "text" && flags.output !== "json")
    throw usageError(`output format "${flags.output}" is not text or json`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const dump = await admin.json<ConfigDump>(ADMIN_PATHS.configDump, "routes");
    const report = await admin.json<{ tasks: readonly Task[] }>(ADMIN_PATHS.tasks, "tasks");
    const found = (dump.backends ?? []).flatMap((backend) => {
      const living = report.tasks.find((task) => task.kind === "mcp backend" && task.name === backend.name);
      return listOf(backend.type === "mcp" ? backend.targets : []).map((one) =>
        stateOf(backend.name, String(one.name), living),
      );
    });
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(found, null, 2)}\n`));
    else if (found.length === 0) terminal.err("no MCP servers\n");
    else terminal.out(told(found));
  } finally {
    admin.close();
  }
}

function stateOf(backend: string, target: string, living: Task | undefined): McpTarget {
  const links = (living?.children ?? []).flatMap((task) => linksOf(task, target));
  const sessions = links.filter(({ state }) => state === "up").length;
  const down = links.find(({ state }) => state === "down");
  // Kept by the backend: a session that never came about leaves nothing of its own.
  const failure = listOf(living?.detail?.failures).find((one) => one.target === target);
  const isFailing = down !== undefined || (sessions === 0 && failure !== undefined && failure.isOver !== true);
  const lastError = down?.lastError ?? failure?.reason;
  const stderr = (down ?? failure)?.stderr;
  return {
    backend,
    target,
    state: isFailing ? "failing" : sessions > 0 ? "up" : "idle",
    sessions,
    ...(typeof lastError === "string" ? { lastError } : {}),
    ...(typeof failure?.agoMs === "number" ? { agoMs: failure.agoMs } : {}),
    stderr: Array.isArray(stderr) ? stderr.map(String) : [],
  };
}

/** Connections to the target; a seat at a server that sessions share has no state of its own. */
function linksOf({ detail = {}, children = [] }: Task, target: string): Fields[] {
  return [detail, ...listOf(detail.targets)]
    .filter((link) => link.target === target && typeof link.state === "string")
    .concat(children.flatMap((child) => linksOf(child, target)));
}

function told(found: readonly McpTarget[]): string {
  const rows = found.map(({ backend, target, state, sessions, lastError, agoMs }) => [
    target,
    backend,
    stateText(state, sessions),
    lastError === undefined ? "" : `${agoMs === undefined ? "" : `${Math.round(agoMs / 1000)} s ago: `}${lastError}`,
  ]);
  const words = found
    .filter(({ state, stderr }) => state === "failing" && stderr.length > 0)
    .map(({ target, stderr }) => `\nstderr of ${target}:\n${stderr.map((line) => `  ${line}\n`).join("")}`);
  return printable(
    `${table([["SERVER", "BACKEND", "STATE", "LAST ERROR"], ...rows], MAX_ERROR_CHARS)}${words.join("")}`,
  );
}

function stateText(state: McpTarget["state"], sessions: number): string {
  if (state === "up") return `running (${sessions} ${sessions === 1 ? "session" : "sessions"})`;
  return state === "failing" ? "failed" : "not started";
}

function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}
