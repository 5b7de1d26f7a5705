/**
 * Reads the commands of documentation pages with test/support/package/doc-commands.ts, for plain scripts.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../steps.mjs";

export function docCommands(page, heading) {
  const commands = [];
  let current = "";
  for (const part of readFileSync(join(root, page), "utf8").split(/^(```[\s\S]*?^```)$/m)) {
    const fenced = /^```(sh|console)\n([\s\S]*?)```$/.exec(part);
    if (!fenced) {
      if (!part.startsWith("```")) current = [...part.matchAll(/^#{1,4} (.+)$/gm)].at(-1)?.[1] ?? current;
      continue;
    }
    if (current !== heading) continue;
    const lines = fenced[2].trim().split("\n");
    if (fenced[1] === "sh") commands.push(...lines);
    else commands.push(...lines.filter((line) => /^[$#] /.test(line)).map((line) => line.slice(2)));
  }
  if (commands.length === 0) throw new Error(`${page} has no commands below ${heading}`);
  return commands;
}
