/**
 * `gwctl mcp lock`: writes down what the tools of every MCP server are now, so that a gateway with `toolsLock` keeps
 * from its clients what changes later. Shows what is different first; suspicious tools are left out unless accepted.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { TargetFlags } from "../instance/target.ts";
import { wrapWords } from "../terminal/table.ts";
import { CliError, printable, type Terminal } from "../terminal/terminal.ts";
import { openTarget } from "./open-target.ts";

export interface McpLockFlags extends TargetFlags {
  readonly lockFile: string;
  readonly check?: boolean;
  readonly acceptSuspicious?: boolean;
  readonly only?: readonly string[];
  readonly backend?: string;
}

interface Tool {
  readonly name: string;
  readonly definition: Readonly<Record<string, unknown>>;
  readonly state: "accepted" | "changed" | "new";
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

interface Inspected {
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

/** Servers may have to start, and each may take a minute. */
const TIMEOUT_MS = 90_000;

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
      terminal.out(told(change, terminal.columns));
      const isChosen = flags.only === undefined || flags.only.includes(`${target}/${change.tool}`);
      const isSuspicious = change.suspicious.length > 0 && flags.acceptSuspicious !== true;
      if (isChosen && !isSuspicious) accepted.push(change);
      else if (change.state !== "gone") left += 1;
    }
  }
  if (flags.check === true) {
    if (changes.length > 0)
      throw new CliError(`${count(changes.length, "tool differs", "tools differ")} from ${flags.lockFile}`);
    terminal.err(`all tools are as ${flags.lockFile} says\n`);
    return;
  }
  // Servers that the configuration does not name any more are left out; of those of other backends nothing is known.
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
    const { body } = await admin.post(ADMIN_PATHS.mcpTools, { timeoutMs: TIMEOUT_MS, what: "MCP tools" });
    const { backends } = JSON.parse(body.toString()) as {
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

/** What does not fit on a line of the terminal goes on below it, further in. */
function told({ target, tool, state, difference, suspicious }: Change, columns = Number.POSITIVE_INFINITY): string {
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
