/**
 * The command tree of gwctl. Commands are loaded when they are called; help and version need nothing else.
 */
import { Command, CommanderError } from "commander";
import { VERSION } from "../lib/version.ts";

/** Resolves with the exit code: 0 done, 1 failed, 2 wrong usage. */
export async function runGwctl(argv: readonly string[]): Promise<number> {
  const program = new Command("gwctl");
  program.description("Looks into a running gateway.").version(`gwctl ${VERSION}`, "-V, --version").exitOverride();
  program
    .command("version")
    .description("prints the version")
    .action(() => void process.stdout.write(`gwctl ${VERSION}\n`));
  try {
    await program.parseAsync(argv, { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    throw error;
  }
}
