/**
 * The commands of a documentation page, for running them: those in `sh` blocks below one heading, one per line.
 * Blocks marked `console` are for people: they need a container engine or a service manager.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

export function docCommands(page: string, heading: string): string[] {
  const section = readFileSync(page, "utf8").split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const commands = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block = ""]) => block.trim().split("\n"));
  assert.ok(commands.length > 0, `${page} has commands below ${heading}`);
  return commands;
}

export function runDocCommands(commands: readonly string[], cwd: string, env: Record<string, string>): void {
  for (const command of commands) {
    const ran = spawnSync("sh", ["-c", command], { cwd, env, encoding: "utf8" });
    assert.equal(ran.status, 0, `${command}: ${ran.stderr}${ran.stdout}`);
  }
}
