/**
 * Shell completion, made from the command tree itself: `source <(gwctl completion bash)`.
 */
import type { Command } from "commander";
import { usageError } from "../terminal/cli-error.ts";

export function completionScript(program: Command, shell: string): string {
  const words = wordsByPath(program);
  switch (shell) {
    case "bash":
      return bash(words);
    case "zsh":
      return `autoload -U +X bashcompinit && bashcompinit\n${bash(words)}`;
    case "fish":
      return fish(words);
    default:
      throw usageError(`no completion for ${shell}: use bash, zsh or fish`);
  }
}

/** `proxy profile` → the words that may follow it. */
function wordsByPath(program: Command): Map<string, string[]> {
  const words = new Map<string, string[]>();
  const visit = (command: Command, path: string): void => {
    const commands = command.commands.map((child) => child.name());
    const options = command.options.flatMap(({ long, short }) => [long, short]).filter((flag) => flag != null);
    words.set(path, [...commands, ...options, "--help"]);
    for (const child of command.commands) visit(child, path === "" ? child.name() : `${path} ${child.name()}`);
  };
  visit(program, "");
  return words;
}

function bash(words: ReadonlyMap<string, readonly string[]>): string {
  const cases = [...words].map(([path, list]) => `    "${path}") words="${list.join(" ")}" ;;`);
  return `_gwctl() {
  local path="" next word words
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in -*) continue ;; esac
    next="\${path:+$path }$word"
    case "$next" in
${[...words.keys()]
  .filter((path) => path !== "")
  .map((path) => `      "${path}") path="$next" ;;`)
  .join("\n")}
    esac
  done
  case "$path" in
${cases.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _gwctl gwctl
`;
}

function fish(words: ReadonlyMap<string, readonly string[]>): string {
  const lines = ["complete -c gwctl -f"];
  for (const [path, list] of words) {
    const parts = path === "" ? [] : path.split(" ");
    const children = list.filter((word) => !word.startsWith("-"));
    const seen = parts.map((part) => `__fish_seen_subcommand_from ${part}`);
    const notYet = children.length === 0 ? [] : [`not __fish_seen_subcommand_from ${children.join(" ")}`];
    const condition = [...seen, ...notYet].join("; and ") || "true";
    for (const word of children) lines.push(`complete -c gwctl -n '${condition}' -a ${word}`);
    for (const word of list.filter((one) => one.startsWith("--")))
      lines.push(`complete -c gwctl -n '${condition}' -l ${word.slice(2)}`);
  }
  return `${lines.join("\n")}\n`;
}
