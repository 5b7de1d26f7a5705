/**
 * Warns of a command line where one program is meant: `cmd: "npx -y x"`. No shell splits it, so that the start of the
 * server would fail, long after the load.
 */
import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { NormalConfig } from "../load/normal-config.ts";
import { type Warn, warningAt } from "./warning.ts";

interface Targets {
  readonly targets: readonly { readonly stdio?: { readonly cmd: string; readonly cwd?: string } }[];
}

export function checkCommands(config: NormalConfig, warn: Warn): void {
  for (const { place, config: written } of config.routes
    .flatMap(({ backends }) => backends)
    .filter(({ key }) => key === "mcp")) {
    for (const [i, { stdio }] of (written as Targets).targets.entries()) {
      if (stdio === undefined || !/\s/.test(stdio.cmd.trim()) || isFile(stdio, place.document.file)) continue;
      const [program = ""] = stdio.cmd.trim().split(/\s/, 1);
      // `KEY=secret npx`: nothing of it is repeated.
      const example = /^[\w./@-]+$/.test(program) ? `\`cmd: ${program}\`` : "the program alone";
      warn(
        warningAt(
          place,
          ["targets", i, "stdio", "cmd"],
          `\`cmd\` is one program and no shell splits it: write ${example} and put the arguments in \`args\``,
        ),
      );
    }
  }
}

/** A path may have spaces. */
function isFile({ cmd, cwd }: { readonly cmd: string; readonly cwd?: string }, file: string): boolean {
  return existsSync(resolve(dirname(file), cwd ?? "", cmd)) || existsSync(resolve(cmd));
}
