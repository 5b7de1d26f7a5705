/**
 * Generates shell completion from the command tree: `source <(gwctl completion bash)`. Request IDs, backends, and limit
 * keys are read from the gateway on this machine. If it is not running, they are omitted.
 */
import type { Command } from "commander";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../record/trace/record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { CliError, type Terminal, usageError } from "../terminal/terminal.ts";
import { type Fields, listOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

const VALUES: readonly (readonly [path: string, flag: string, values: readonly string[] | string])[] = [
  ["explain", "", "requests"],
  ["cel", "--request", "requests"],
  ["limits", "--key", "keys"],
  ["mcp lock", "--backend", "backends"],
  ["import", "", ["mcpServers", "agentgateway", "litellm", "supergateway"]],
  ["completion", "", ["bash", "zsh", "fish"]],
  ["proxy log", "--level", ["error", "warn", "info", "debug", "trace"]],
];

export function completionScript(program: Command, shell: string): string {
  const words = wordsByPath(program);
  switch (shell) {
    case "bash":
      return bash(words);
    case "zsh":
      return `autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n${bash(words)}`;
    case "fish":
      return fish(words);
    default:
      throw usageError(`no completion for ${shell}: use bash, zsh or fish`);
  }
}

function wordsByPath(program: Command): Map<string, string[]> {
  const words = new Map<string, string[]>();
  const visit = (command: Command, path: string): void => {
    const children = command.commands.filter((child) => child.name() !== "complete-names");
    const options = command.options.flatMap(({ long, short }) => [long, short]).filter((flag) => flag != null);
    words.set(path, [...children.map((child) => child.name()), ...options, "--help"]);
    for (const child of children) visit(child, path === "" ? child.name() : `${path} ${child.name()}`);
  };
  visit(program, "");
  return words;
}

function bash(words: ReadonlyMap<string, readonly string[]>): string {
  const cases = [...words].map(([path, list]) => `    "${path}") words="${list.join(" ")}" ;;`);
  const flagged = VALUES.filter(([, flag]) => flag !== "").map(
    ([path, flag, values]) => `    "${path} ${flag}") words="${source(values)}"; only=1 ;;`,
  );
  const placed = VALUES.filter(([, flag]) => flag === "").map(
    ([path, , values]) => `    "${path}") words="$words ${source(values)}" ;;`,
  );
  return `_gwctl() {
  local path="" next word words="" only="" port="" previous="" current="\${COMP_WORDS[COMP_CWORD]}"
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$previous" in -p|--admin-port) case "$word" in *[!0-9]*) ;; *) port="$word" ;; esac ;; esac
    previous="$word"
    case "$word" in -*) continue ;; esac
    next="\${path:+$path }$word"
    case "$next" in
${[...words.keys()]
  .filter((path) => path !== "")
  .map((path) => `      "${path}") path="$next" ;;`)
  .join("\n")}
    esac
  done
  case "$path $previous" in
${flagged.join("\n")}
  esac
  if [ -z "$only" ]; then
  case "$path" in
${cases.join("\n")}
  esac
  case "$path" in
${placed.join("\n")}
  esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _gwctl gwctl
`;
}

function source(values: readonly string[] | string): string {
  if (typeof values !== "string") return values.join(" ");
  return `$(gwctl \${port:+-p "$port"} complete-names ${values} 2>/dev/null)`;
}

function fish(words: ReadonlyMap<string, readonly string[]>): string {
  const lines = ["complete -c gwctl -f"];
  for (const [path, list] of words) {
    const children = list.filter((word) => !word.startsWith("-"));
    const condition = fishCondition(path, children);
    for (const word of children) lines.push(`complete -c gwctl -n '${condition}' -a ${word}`);
    for (const word of list.filter((one) => one.startsWith("--"))) {
      const values = VALUES.find(([of, flag]) => of === path && flag === word)?.[2];
      const after = values === undefined ? "" : ` -x -a '${fishSource(values)}'`;
      lines.push(`complete -c gwctl -n '${condition}' -l ${word.slice(2)}${after}`);
    }
    for (const [of, flag, values] of VALUES)
      if (of === path && flag === "") lines.push(`complete -c gwctl -n '${condition}' -a '${fishSource(values)}'`);
  }
  return `${lines.join("\n")}\n`;
}

function fishCondition(path: string, children: readonly string[]): string {
  const seen = (path === "" ? [] : path.split(" ")).map((part) => `__fish_seen_subcommand_from ${part}`);
  const notYet = children.length === 0 ? [] : [`not __fish_seen_subcommand_from ${children.join(" ")}`];
  return [...seen, ...notYet].join("; and ") || "true";
}

function fishSource(values: readonly string[] | string): string {
  return typeof values === "string" ? `(gwctl complete-names ${values} 2>/dev/null)` : values.join(" ");
}

const MAX_NAMES = 100;
/** The shell evaluates completions, so names with other characters are omitted. */
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
