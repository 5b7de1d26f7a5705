/**
 * `gwctl mcp lock` writes the tools of an MCP backend's servers to a lock file. `gwctl mcp connections` lists, tests,
 * and revokes accounts that users connected at MCP servers.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { table, wrapWords } from "../terminal/table.ts";
import { CliError, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");

export interface McpLockFlags extends TargetFlags {
  readonly lockFile: string;
  readonly check?: boolean;
  readonly acceptSuspicious?: boolean;
  readonly only?: readonly string[];
  readonly backend?: string;
}

export interface Tool {
  readonly name: string;
  readonly shown: string | null;
  readonly definition: Readonly<Record<string, unknown>>;
  readonly state: "accepted" | "changed" | "new";
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

export interface Inspected {
  readonly target: string;
  readonly tools: readonly Tool[];
  readonly error?: string;
}

interface Change {
  readonly target: string;
  readonly tool: string;
  readonly state: "new" | "changed" | "gone";
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

const LOCK_TIMEOUT_MS = 90_000;

export async function mcpLock(name: string | undefined, flags: McpLockFlags, terminal: Terminal): Promise<void> {
  const { changesSince, readLockFile, withChanges, writeLockFile } = await import("../../mcp/tools/tool-lock.ts");
  const inspected = await inspect(name, flags, terminal);
  const locked = orFail(() => readLockFile(flags.lockFile)) ?? new Map();
  const changes = changesSince(locked, inspected);
  const accepted: typeof changes = [];
  let left = 0;
  for (const { target, error } of inspected) {
    if (error !== undefined) terminal.err(printable(`${target}: ${error}; its entries stay as they are\n`));
    for (const change of changes.filter((one) => one.target === target)) {
      terminal.out(describeChange(change, terminal.columns));
      const isChosen = flags.only === undefined || flags.only.includes(`${target}/${change.tool}`);
      const isSuspicious = change.suspicious.length > 0 && flags.acceptSuspicious !== true;
      if (isChosen && !isSuspicious) accepted.push(change);
      else if (change.state !== "gone") left += 1;
    }
  }
  if (flags.check === true) {
    if (changes.length > 0)
      throw new CliError(`${count(changes.length, "tool differs", "tools differ")} from ${flags.lockFile}`);
    terminal.err(`all tools match ${flags.lockFile}\n`);
    return;
  }
  // Without --backend, entries of servers that were not inspected are dropped.
  const present = new Map(inspected.map(({ target }) => [target, locked.get(target) ?? new Map()]));
  const tools = withChanges(flags.backend === undefined ? present : new Map([...locked, ...present]), accepted);
  orFail(() => writeLockFile(flags.lockFile, tools), `cannot write ${flags.lockFile}: `);
  const total = [...tools.values()].reduce((sum, { size }) => sum + size, 0);
  terminal.err(`${flags.lockFile}: ${count(total, "tool", "tools")}, ${accepted.length} of them changed\n`);
  if (left > 0)
    throw new CliError(`${count(left, "tool was", "tools were")} not accepted (--only, --accept-suspicious)`);
}

async function inspect(
  name: string | undefined,
  flags: McpLockFlags,
  terminal: Terminal,
): Promise<readonly Inspected[]> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const { body } = await admin.post(ADMIN_PATHS.mcpTools, { timeoutMs: LOCK_TIMEOUT_MS });
    const { backends } = readJson(RESPONSE, body) as {
      readonly backends: readonly { readonly backend: string; readonly targets: readonly Inspected[] }[];
    };
    const chosen = backends.filter(({ backend }) => flags.backend === undefined || backend === flags.backend);
    if (chosen.length === 1) return chosen[0]?.targets ?? [];
    const names = backends.map(({ backend }) => backend).join(", ");
    if (chosen.length === 0)
      throw new CliError(names === "" ? "no MCP servers" : `no such backend; there are ${names}`);
    throw new CliError(
      `several MCP backends, each with a lock file of its own: choose one with --backend (${names})`,
      2,
    );
  } finally {
    admin.close();
  }
}

function describeChange(
  { target, tool, state, difference, suspicious }: Change,
  columns = Number.POSITIVE_INFINITY,
): string {
  const lines = [...difference, ...suspicious.map((one) => `! ${one}`)].map((line) => `  ${line}`);
  return [`${target}/${tool}: ${state}`, ...lines]
    .flatMap((line) => {
      const [first = "", ...rest] = wrapWords(printable(line), Math.max(20, columns - 6));
      return [first, ...rest.map((one) => `      ${one}`)];
    })
    .map((line) => `${line}\n`)
    .join("");
}

function orFail<Value>(work: () => Value, prefix = ""): Value {
  try {
    return work();
  } catch (error) {
    throw new CliError(`${prefix}${error instanceof Error ? error.message : String(error)}`);
  }
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}

export interface McpConnectionsFlags extends TargetFlags {
  readonly test?: string;
  readonly revoke?: string;
  readonly output?: string;
}

interface Connection {
  readonly id: string;
  readonly backend: string;
  readonly target: string;
  readonly server: string;
  readonly user: string;
  readonly connectedAt: string;
  readonly expiresAt: string;
  readonly renews: boolean;
}

const CONNECTION_TIMEOUT_MS = 60_000;

export async function mcpConnections(
  name: string | undefined,
  flags: McpConnectionsFlags,
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  if (flags.test !== undefined && flags.revoke !== undefined) throw usageError("use only one of --test and --revoke");
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const id = flags.test ?? flags.revoke;
    if (id !== undefined) {
      const action = flags.test === undefined ? "revoke" : "test";
      const body = JSON.stringify({ action, id });
      const response = await admin.post(ADMIN_PATHS.mcpConnections, {
        body,
        timeoutMs: CONNECTION_TIMEOUT_MS,
      });
      const { ok, reason } = readJson(RESPONSE, response.body) as { ok: boolean; reason: string };
      if (!ok) throw new CliError(`${id}: ${reason}`);
      terminal.out(printable(`${id}: ${action === "revoke" ? "revoked: " : ""}${reason}\n`));
      return;
    }
    const found = await admin.json<{ connections: readonly Connection[] }>(ADMIN_PATHS.mcpConnections, "connections");
    if (isData(format)) printData(found.connections, format, terminal);
    else if (found.connections.length === 0) terminal.err("no user has connected an account\n");
    else terminal.out(connectionTable(found.connections, terminal));
  } finally {
    admin.close();
  }
}

function connectionTable(connections: readonly Connection[], terminal: Terminal): string {
  const rows = connections.map(({ id, user, target, server, connectedAt, expiresAt, renews }) => [
    id,
    user,
    target,
    server,
    connectedAt.slice(0, 16).replace("T", " "),
    renews ? "renewed in time" : `until ${expiresAt.slice(0, 16).replace("T", " ")}`,
  ]);
  return table([["ID", "USER", "SERVER", "HOST", "CONNECTED", "TOKEN"], ...rows], { paint: paintOf(terminal) });
}
