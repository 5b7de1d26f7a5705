/**
 * The command tree of gwctl. Commands are loaded when they are called; help and version need nothing else.
 * Every failure is one line that says what to do.
 */
import { Command, CommanderError } from "commander";
import { VERSION } from "../lib/text/version.ts";
import { addExamples } from "./examples.ts";
import { withTarget } from "./instance/target.ts";
import { misplacedCommand } from "./misplaced-command.ts";
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
    if (request !== undefined && !isTrace) throw new CliError("only `gwctl proxy trace` accepts arguments after --", 2);
    const program = createProgram(terminal, request);
    const meant = misplacedCommand(program, own);
    if (meant.length > 0)
      throw new CliError(
        `there is no command \`gwctl ${own.find((word) => !word.startsWith("-"))}\`; use ${listed(meant)}`,
        2,
      );
    await program.parseAsync(own, { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (!(error instanceof CliError)) throw error;
    terminal.err(`gwctl: ${error.message}\n`);
    if (error.exitCode === 2) terminal.err("(see gwctl --help)\n");
    return error.exitCode;
  }
}

function listed(commands: readonly string[]): string {
  return commands.map((command) => `\`${command}\``).join(" or ");
}

function createProgram(terminal: Terminal, request: readonly string[] | undefined): Command {
  // The flags that select a gateway may stand before, between and after the words of a command.
  const program = withTarget(new Command("gwctl"))
    .description("Inspects a running gateway: what happened to a request, and why.")
    .version(`gwctl ${VERSION}`, "-V, --version")
    .enablePositionalOptions()
    .hook("preAction", (_program, command) => inheritFlags(command))
    .exitOverride()
    .configureOutput({ writeOut: terminal.out, writeErr: terminal.err })
    .showHelpAfterError("(add --help for usage)")
    .addHelpText(
      "after",
      `
Common commands:
  gwctl status                       one screen: what runs, and what is wrong
  gwctl top                          busiest routes, tools, models and keys, live
  gwctl requests --follow            watch requests as they end
  gwctl explain <x-request-id>       explain why a request was rejected or failed
  gwctl requests --failed            list recent requests that failed
  gwctl proxy trace --local          step through the next request
  gwctl proxy config all --local     show the loaded configuration`,
    );
  addProxyCommands(program, terminal, request);

  withTarget(program.command("status [instance]"))
    .description("show the gateway on one screen: state, traffic, servers, limits, and problems in words")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/status-command.ts")).status(name, flags, terminal));
  withTarget(program.command("top [instance]"))
    .description("show the busiest routes, tools, models and keys of the last minute, live")
    .option("--by <kind>", "only route, tool, model or key")
    .option("--interval <seconds>", "time between two looks (default 2)")
    .option("--once", "print it once")
    .option("-o, --output <format>", "text or json (one object per look)", "text")
    .action(async (name, flags) => (await import("./live/top-command.ts")).top(name, flags, terminal));
  withTarget(program.command("explain <request-id> [instance]"))
    .description("explain what happened to a request, by the x-request-id of its response")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (id, name, flags) =>
      (await import("./commands/requests-command.ts")).explain(id, name, flags, terminal),
    );

  withTarget(program.command("upgrade [instance]"))
    .description("start the new version of the program and hand the sockets and sessions over to it")
    .action(async (name, flags) => (await import("./commands/upgrade-command.ts")).upgrade(name, flags, terminal));

  withTarget(program.command("requests [instance]"))
    .description("list recent requests, newest first")
    .option("--failed", "only requests that were rejected or failed")
    .option("--follow", "go on with each request as it ends, until Ctrl-C")
    .option("--limit <n>", "number of requests (default 20)")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/requests-command.ts")).requests(name, flags, terminal));

  withTarget(program.command("policies [instance]"))
    .description("list every policy, where it applies, and its status")
    .option("-f, --file <dump.json>", "read a saved /config_dump instead of a gateway")
    .option("-o, --output <format>", "short, yaml or json", "short")
    .action(async (name, flags) => (await import("./commands/policies-command.ts")).policies(name, flags, terminal));

  withTarget(program.command("budgets [instance]"))
    .description("show budgets and what was spent of them")
    .option("--key <text>", "only keys with this text")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) =>
      (await import("./commands/inspect-command.ts")).inspect("budgets", name, flags, terminal),
    );

  const keys = withTarget(program.command("keys"))
    .enablePositionalOptions()
    .description("API keys in the store of a gateway");
  withTarget(keys.command("make [instance]"))
    .description("make an API key and print it, once")
    .requiredOption("--name <text>", "whose key it is")
    .option("--expires <when>", "a duration such as 90d, or a date such as 2027-01-31 (default: never)")
    .option("--models <names>", "the models it may use, comma-separated, each with at most one * (default: all)")
    .option("--cost <dollars>", "a budget in US dollars, with --per")
    .option("--tokens <n>", "a budget in tokens, with --per")
    .option("--per <period>", "day, week or month")
    .option("--metadata <name=value...>", "readable as apiKey.<name> in expressions")
    .action(async (name, flags) => (await import("./llm/keys-command.ts")).makeKey(name, flags, terminal));
  withTarget(keys.command("list [instance]"))
    .description("list the API keys, without the keys themselves")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./llm/keys-command.ts")).listKeys(name, flags, terminal));
  withTarget(keys.command("revoke <id> [instance]"))
    .description("revoke an API key by its id")
    .action(async (id, name, flags) => (await import("./llm/keys-command.ts")).revokeKey(id, name, flags, terminal));

  program
    .command("prices")
    .description("prices of models")
    .command("import <file>")
    .description("make a modelCatalog from LiteLLM's model_prices_and_context_window.json")
    .option("--provider <name...>", "only these providers, for example openai gcp.gemini")
    .option("-o, --output <file>", "write it to a file (default: standard output)")
    .action(async (file, flags) => (await import("./llm/prices-command.ts")).importPrices(file, flags, terminal));

  const gateway = program.command("gateway").description("Gateways of a Kubernetes cluster");
  gateway
    .command("list")
    .description("list the Gateways of a namespace with their addresses, status and routes")
    .option("-n, --namespace <name>", "namespace (default: that of the kubeconfig)")
    .option("-A, --all-namespaces", "all namespaces")
    .option("-k, --kubeconfig <file>", "kubeconfig of the cluster")
    .option("--context <name>", "context in the kubeconfig")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (flags) => (await import("./cluster/gateway-list.ts")).listGateways(flags, terminal));

  withTarget(program.command("cel <expression>"))
    .description("evaluate a CEL expression, part by part")
    .option("--request <id>", "use the attributes of a recent request")
    .action(async (expression, flags) =>
      (await import("./commands/inspect-command.ts")).cel(expression, flags, terminal),
    );

  withTarget(program.command("shadow").description("policies in shadow mode").command("report [instance]"))
    .description("list whom policies in shadow mode would deny, how often, and by which rule")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/shadow-command.ts")).shadowReport(name, flags, terminal));

  withTarget(program.command("mirror").description("answers of mirrors").command("report [instance]"))
    .description("list how answers of mirrors differ from the backends', where requestMirror compares them")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/mirror-command.ts")).mirrorReport(name, flags, terminal));

  withTarget(program.command("record [instance]"))
    .description("record requests into a file, without bodies and credentials")
    .requiredOption("-o, --output <file>", "where to write, one JSON object per line")
    .option("--last", "the requests that the gateway remembers, instead of those to come")
    .option("--count <n>", "stop after this many", "10000")
    .option("--seconds <n>", "stop after this time")
    .option("--sample <share>", "the share of requests to record, from 0 to 1", "1")
    .action(async (name, flags) => (await import("./replay/record-command.ts")).record(name, flags, terminal));

  withTarget(program.command("replay <file>"))
    .description("send recorded requests to a gateway and compare its answers with the recording")
    .requiredOption("--to <url>", "the gateway, for example http://localhost:3000")
    .option("--speed <factor>", "1: at the pace of the recording, 2: twice as fast, max: at once", "1")
    .option("--concurrency <n>", "requests at the same time", "16")
    .option("--methods <list>", "methods that are sent; recordings have no bodies", "GET,HEAD,OPTIONS")
    .option("-H, --header <name: value...>", "headers to add, for example a credential")
    .option("--policies", "also compare routes and verdicts, as the gateway's admin interface tells them")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (file, flags) => (await import("./replay/replay-command.ts")).replay(file, flags, terminal));

  withTarget(program.command("what-if <method> <url>"))
    .description("show what the gateway would do with a request, without sending it")
    .option("--claims <json>", "the claims of a valid token that the client sends")
    .option("--token <token>", "an access token; - reads standard input. All but its signature is checked")
    .option("-H, --header <name: value...>", "request headers")
    .option("--source <address>", "the client's address (default 127.0.0.1)")
    .option("--listener <name>", "the listener, if the URL does not choose it")
    .option("--tool <name>", "call this MCP tool")
    .option("--arguments <json>", "the arguments of the call")
    .option("--prompt <name>", "read this MCP prompt")
    .option("--resource <uri>", "read this MCP resource")
    .option("--mcp-method <method>", "the MCP method, for example tools/list")
    .option("--model <name>", "an LLM call of this model")
    .option("--repeat <n>", "make the request n times and show the last")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (method, url, flags) =>
      (await import("./commands/what-if-command.ts")).whatIf(method, url, flags, terminal),
    );

  const mcp = withTarget(program.command("mcp")).enablePositionalOptions().description("manage what MCP servers offer");
  withTarget(mcp.command("lock [instance]"))
    .description("write down what the tools of the MCP servers are, and show what changed (see toolsLock)")
    .option("--lock-file <file>", "the lock file", "tools.lock")
    .option("--check", "write nothing; exit with 1 if anything differs")
    .option("--only <target/tool...>", "accept only these tools")
    .option("--accept-suspicious", "also accept tools whose texts look like instructions to a model")
    .option("--backend <name>", "the MCP backend, if there are several")
    .action(async (name, flags) => (await import("./mcp/mcp-lock-command.ts")).mcpLock(name, flags, terminal));
  withTarget(mcp.command("connections [instance]"))
    .description("list accounts that users connected at MCP servers; test or revoke one")
    .option("--test <id>", "ask the server whether it accepts the account's token")
    .option("--revoke <id>", "forget the account's tokens, here and at the server")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) =>
      (await import("./mcp/mcp-connections-command.ts")).mcpConnections(name, flags, terminal),
    );

  program
    .command("auth")
    .description("check the logins of a configuration")
    .command("check")
    .description("check every login of a configuration with its identity provider, step by step")
    .requiredOption("-f, --file <path...>", "configuration files or folders; - for standard input")
    .option("--token-file <file>", "also check this access token; - for standard input")
    .action(async (flags) => (await import("./commands/auth-check-command.ts")).authCheck(flags, terminal));

  program
    .command("import <kind> <file>")
    .description("another program's configuration as one of ours: mcpServers, agentgateway, litellm, supergateway")
    .action(async (kind, file) => (await import("./commands/import-command.ts")).importConfig(kind, file, terminal));

  program
    .command("version")
    .description("print the version")
    .action(() => terminal.out(`gwctl ${VERSION}\n`));

  program
    .command("completion <shell>")
    .description("print completion for bash, zsh or fish: source <(gwctl completion bash)")
    .action(async (shell) => terminal.out((await import("./commands/completion.ts")).completionScript(program, shell)));

  program
    .command("complete-names <kind>", { hidden: true })
    .description("names of a running gateway for shell completion, one per line")
    .action(async (kind, _flags, command: Command) =>
      (await import("./commands/live-names.ts")).liveNames(kind, command.optsWithGlobals(), terminal),
    );
  addExamples(program);
  return program;
}

/** What was said before or between the words of a command counts for it, unless it was said again at its end. */
function inheritFlags(command: Command): void {
  for (let above = command.parent; above; above = above.parent)
    for (const [name, value] of Object.entries(above.opts()))
      if (command.getOptionValue(name) === undefined) command.setOptionValueWithSource(name, value, "cli");
}
