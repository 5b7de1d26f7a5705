/**
 * Reads the commands of a documentation page: `sh` blocks with one command per line, and `console` blocks, whose
 * commands follow `$` or `#` (root) and need a container engine, a service manager or a cluster.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

export interface DocBlock {
  readonly page: string;
  /** The nearest heading above it. */
  readonly heading: string;
  readonly language: string;
  readonly commands: readonly string[];
}

/** Every block of a page that is meant for a shell, under whatever name. */
export function docBlocks(page: string): DocBlock[] {
  const blocks: DocBlock[] = [];
  let heading = "";
  for (const part of readFileSync(page, "utf8").split(/^(```[\s\S]*?^```)$/m)) {
    const fenced = /^```(sh|bash|shell|console)\n([\s\S]*?)```$/.exec(part);
    if (fenced) {
      const [, language = "", text = ""] = fenced;
      blocks.push({ page, heading, language, commands: commandsIn(text, language === "console") });
    } else if (!part.startsWith("```")) heading = [...part.matchAll(/^#{1,4} (.+)$/gm)].at(-1)?.[1] ?? heading;
  }
  return blocks;
}

export function docCommands(page: string, heading: string): string[] {
  const commands = docBlocks(page)
    .filter((block) => block.heading === heading)
    .flatMap((block) => block.commands);
  assert.ok(commands.length > 0, `${page} has commands below ${heading}`);
  return commands;
}

export function runDocCommands(commands: readonly string[], cwd: string, env: Record<string, string>): void {
  for (const command of commands) {
    const ran = spawnSync("sh", ["-c", command], { cwd, env, encoding: "utf8" });
    assert.equal(ran.status, 0, `${command}: ${ran.stderr}${ran.stdout}`);
  }
}

function commandsIn(text: string, hasPrompts: boolean): string[] {
  const lines = text.trim().split("\n");
  return hasPrompts ? lines.filter((line) => /^[$#] /.test(line)).map((line) => line.slice(2)) : lines;
}
