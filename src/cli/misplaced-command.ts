/**
 * A command that is asked for without the words before it: `gwctl trace` for `gwctl proxy trace`.
 */
import type { Command } from "commander";

/** The whole commands that end with the first word, if no command begins with any of them. */
export function misplacedCommand(program: Command, argv: readonly string[]): readonly string[] {
  const tops = new Set(["help", ...program.commands.flatMap((one) => [one.name(), ...one.aliases()])]);
  const word = argv.find((argument) => !argument.startsWith("-"));
  if (word === undefined || argv.some((argument) => tops.has(argument))) return [];
  return pathsTo(program, word, program.name());
}

function pathsTo(parent: Command, name: string, path: string): string[] {
  return parent.commands.flatMap((one) => {
    const own = `${path} ${one.name()}`;
    return [...(one.name() === name ? [own] : []), ...pathsTo(one, name, own)];
  });
}
