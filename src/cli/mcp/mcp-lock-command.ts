/**
 * `gwctl mcp lock`: writes down what the tools of every MCP server are now, so that a gateway with `toolsLock` keeps
 * from its clients what changes later. Shows what is different first; suspicious tools are left out unless accepted.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { openTarget } from "../commands/open-target.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError } from "../terminal/cli-error.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";

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

interface Lock {
  readonly version: 1;
  readonly targets: Record<string, Record<string, unknown>>;
}

/** Servers may have to start, and each may take a minute. */
const TIMEOUT_MS = 90_000;

export async function mcpLock(name: string | undefined, flags: McpLockFlags, terminal: Terminal): Promise<void> {
  const inspected = await inspect(name, flags, terminal);
  const before = readLock(flags.lockFile);
  const targets: Lock["targets"] = Object.create(null);
  let differs = 0;
  let left = 0;
  for (const { target, tools, error } of inspected) {
    if (error !== undefined) terminal.err(printable(`${target}: ${error}; its entries stay as they are\n`));
    const accepted: Record<string, unknown> = Object.create(null);
    const known = before.targets[target] ?? {};
    if (error !== undefined) Object.assign(accepted, known);
    for (const tool of [...tools].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const isKnown = JSON.stringify(known[tool.name]) === JSON.stringify(tool.definition);
      const isChosen = flags.only === undefined || flags.only.includes(`${target}/${tool.name}`);
      const isSuspicious = tool.suspicious.length > 0 && flags.acceptSuspicious !== true;
      if (isKnown) {
        accepted[tool.name] = tool.definition;
        continue;
      }
      differs += 1;
      terminal.out(printable(told(target, tool, known[tool.name] !== undefined)));
      if (isChosen && !isSuspicious) accepted[tool.name] = tool.definition;
      else {
        left += 1;
        if (known[tool.name] !== undefined) accepted[tool.name] = known[tool.name];
      }
    }
    const gone = Object.keys(known).filter((one) => !tools.some((tool) => tool.name === one));
    if (error === undefined && gone.length > 0) {
      differs += gone.length;
      terminal.out(printable(gone.map((one) => `${target}/${one}: gone\n`).join("")));
      if (flags.only !== undefined) for (const one of gone) accepted[one] = known[one];
    }
    targets[target] = accepted;
  }
  if (flags.check === true) {
    if (differs > 0) throw new CliError(`${count(differs, "tool differs", "tools differ")} from ${flags.lockFile}`);
    terminal.err(`all tools are as ${flags.lockFile} says\n`);
    return;
  }
  writeLock(flags.lockFile, { version: 1, targets });
  const total = Object.values(targets).reduce((sum, tools) => sum + Object.keys(tools).length, 0);
  terminal.err(`${flags.lockFile}: ${count(total, "tool", "tools")}, ${differs - left} of them changed\n`);
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

function told(target: string, tool: Tool, isChanged: boolean): string {
  const what = isChanged ? "changed" : "new";
  const lines = tool.state === "changed" ? tool.difference : [];
  const suspicious = tool.suspicious.map((one) => `  ! ${one}\n`).join("");
  return `${target}/${tool.name}: ${what}\n${lines.map((line) => `  ${line}\n`).join("")}${suspicious}`;
}

function readLock(file: string): Lock {
  if (!existsSync(file)) return { version: 1, targets: {} };
  try {
    const lock = JSON.parse(readFileSync(file, "utf8")) as Lock;
    if (lock.version === 1 && typeof lock.targets === "object") return lock;
  } catch {
    // Said below.
  }
  throw new CliError(`${file} is not a lock file of this version: move it away first`);
}

/** In one step: a gateway that watches the file never reads half of it. */
function writeLock(file: string, lock: Lock): void {
  const temporary = `${file}.tmp`;
  try {
    writeFileSync(temporary, `${JSON.stringify(lock, null, 2)}\n`);
    renameSync(temporary, file);
  } catch (error) {
    throw new CliError(`cannot write ${file}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}
