/**
 * The command tree of gwctl. Commands are loaded when they are called; help and version need nothing else.
 * Every failure is one line that says what to do.
 */
import { Command, CommanderError } from "commander";
import { VERSION } from "../lib/text/version.ts";
import { withTarget } from "./instance/target.ts";
import { addProxyCommands } from "./proxy.ts";
import { CliError } from "./terminal/cli-error.ts";
import type { Terminal } from "./terminal/terminal.ts";

/** Resolves with the exit code: 0 done, 1 failed, 2 wrong usage. */
export async function runGwctl(argv: readonly string[], terminal: Terminal): Promise<number> {
  // What follows `--` belongs to curl, whatever it looks like.
  const dashes = argv.indexOf("--");
  const request = dashes < 0 ? undefined : argv.slice(dashes + 1);
  const own = dashes < 0 ? argv : argv.slice(0, dashes);
  try {
    const isTrace = own[0] === "proxy" && own[1] === "trace";
    if (request !== undefined && !isTrace) throw new CliError("only `gwctl proxy trace` takes arguments after --", 2);
    await createProgram(terminal, request).parseAsync(own, { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (!(error instanceof CliError)) throw error;
    terminal.err(`gwctl: ${error.message}\n`);
    if (error.exitCode === 2) terminal.err("(gwctl --help shows how it is used)\n");
    return error.exitCode;
  }
}

function createProgram(terminal: Terminal, request: readonly string[] | undefined): Command {
  const program = new Command("gwctl")
    .description("Looks into a running gateway: what happened to a request, and why.")
    .version(`gwctl ${VERSION}`, "-V, --version")
    .exitOverride()
    .configureOutput({ writeOut: terminal.out, writeErr: terminal.err })
    .showHelpAfterError("(add --help to see how it is used)")
    .addHelpText(
      "after",
      `
Most used:
  gwctl explain <x-request-id>       why was this refused? the story of one request
  gwctl requests --failed            the last requests that went wrong
  gwctl proxy trace --local          step through the next request
  gwctl proxy config all --local     the configuration as the gateway runs it`,
    );
  addProxyCommands(program, terminal, request);

  withTarget(program.command("explain <request-id> [target]"))
    .description("tell the story of one request, by the x-request-id of its response")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (id, name, flags) =>
      (await import("./commands/requests-command.ts")).explain(id, name, flags, terminal),
    );

  withTarget(program.command("requests [target]"))
    .description("the last requests, newest first")
    .option("--failed", "only those that were refused or failed")
    .option("--limit <n>", "how many (default 20)")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/requests-command.ts")).requests(name, flags, terminal));

  withTarget(program.command("policies [target]"))
    .description("every policy, where it stands and what it says")
    .option("-f, --file <dump.json>", "a saved /config_dump instead of a gateway")
    .option("-o, --output <format>", "short, yaml or json", "short")
    .action(async (name, flags) => (await import("./commands/policies-command.ts")).policies(name, flags, terminal));

  withTarget(program.command("cel <expression>"))
    .description("try a CEL expression, part by part")
    .option("--request <id>", "on the attributes of a recent request")
    .action(async (expression, flags) =>
      (await import("./commands/inspect-command.ts")).cel(expression, flags, terminal),
    );

  program
    .command("auth")
    .description("logins of a configuration")
    .command("check")
    .description("try every login of a configuration against its identity provider, leg by leg")
    .requiredOption("-f, --file <path...>", "configuration files or folders, as for the gateway; - for standard input")
    .option("--token-file <file>", "also check this access token of a real login; - for standard input")
    .action(async (flags) => (await import("./commands/auth-check-command.ts")).authCheck(flags, terminal));

  program
    .command("version")
    .description("prints the version")
    .action(() => terminal.out(`gwctl ${VERSION}\n`));

  program
    .command("completion <shell>")
    .description("prints completion for bash, zsh or fish: source <(gwctl completion bash)")
    .action(async (shell) => terminal.out((await import("./commands/completion.ts")).completionScript(program, shell)));

  return program;
}
