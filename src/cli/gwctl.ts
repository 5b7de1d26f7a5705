/**
 * Builds the command tree of gwctl. Each command is imported when it is called, so that `--help` and completion are
 * fast.
 */
import { Command, CommanderError } from "commander";
import { VERSION } from "../base/version.ts";
import { addExamples } from "./examples.ts";
import { addTargetOptions, withTarget } from "./instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "./terminal/output.ts";
import { wrapWords } from "./terminal/table.ts";
import { CliError, escapingTerminal, type Terminal, usageError } from "./terminal/terminal.ts";

/** The width of help texts if the output is a pipe or a file. */
const DEFAULT_COLUMNS = 80;

/**
 * Resolves with the exit code: 0 for success, 1 for a failure or a check that found something, and 2 for wrong usage,
 * also if the gateway rejects an argument.
 */
export async function runGwctl(argv: readonly string[], given: Terminal): Promise<number> {
  const terminal = escapingTerminal(given);
  const dashes = argv.indexOf("--");
  const request = dashes < 0 ? undefined : argv.slice(dashes + 1);
  const own = dashes < 0 ? argv : argv.slice(0, dashes);
  const program = createProgram(terminal, request);
  const { command, rest } = calledCommand(program, own);
  try {
    if (request !== undefined && pathOf(command) !== "gwctl proxy trace")
      throw usageError("only `gwctl proxy trace` accepts arguments after --");
    checkCommand(program, command, rest);
    await program.parseAsync(own, { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    if (!(error instanceof CommanderError || error instanceof CliError)) throw error;
    if (error instanceof CliError) terminal.err(`gwctl: ${error.message}\n`);
    if (error instanceof CliError && error.exitCode === 1) return 1;
    if (
      error instanceof CommanderError &&
      error.code === "commander.unknownCommand" &&
      !error.message.includes("Did you mean")
    )
      terminal.err(`${wrapWords(commandList(command), terminal.columns ?? DEFAULT_COLUMNS).join("\n")}\n`);
    terminal.err(`(see ${pathOf(command)} --help)\n`);
    return 2;
  }
}

/** Throws a usage error with suggestions if the words after `command` are no command below it. */
function checkCommand(program: Command, command: Command, [word, next]: readonly string[]): void {
  if (word === undefined || word === "help" || command.commands.length === 0) return;
  const named = command === program ? misplacedCommand(program, word) : [];
  const verbless = VERBS.has(word) ? visibleCommands(program).find((one) => isNamed(one, next ?? "")) : undefined;
  const meant = verbless === undefined ? named : [pathOf(verbless)];
  if (meant.length > 0) throw usageError(`there is no command \`${pathOf(command)} ${word}\`; use ${listed(meant)}`);
}

/** kubectl puts these before the name of a resource. */
const VERBS = new Set(["get", "list", "show", "describe"]);

function listed(commands: readonly string[]): string {
  return commands.map((command) => `\`${command}\``).join(" or ");
}

export function createProgram(terminal: Terminal, request: readonly string[] | undefined): Command {
  const program = addTargetOptions(new Command("gwctl").helpOption("-h, --help", "print help"))
    .description("Inspects a running gateway: what happened to a request, and why.")
    .version(`gwctl ${VERSION}`, "-V, --version")
    .enablePositionalOptions()
    .hook("preAction", (_program, command) => inheritFlags(command))
    .exitOverride()
    .configureOutput({
      writeOut: terminal.out,
      writeErr: terminal.err,
      outputError: (text, write) => write(text.replace(/^error: /, "gwctl: ")),
      getOutHelpWidth: () => terminal.columns ?? DEFAULT_COLUMNS,
      getErrHelpWidth: () => terminal.columns ?? DEFAULT_COLUMNS,
    })
    .configureHelp({ subcommandTerm: (command) => command.name() })
    .addHelpText(
      "after",
      `
Common commands:
  gwctl status                    one screen: the state, and current problems
  gwctl top                       busiest routes, tools, models and keys, live
  gwctl requests --follow         watch requests as they end
  gwctl explain <x-request-id>    explain why a request was rejected or failed
  gwctl requests --failed         list recent requests that failed
  gwctl proxy trace --local       step through the next request
  gwctl proxy config all --local  show the loaded configuration`,
    );
  withTarget(program.command("status [instance]"))
    .description("show the gateway on one screen: state, traffic, servers, limits, and problems as sentences")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/status-command.ts")).status(name, flags, terminal));
  withTarget(program.command("top [instance]"))
    .description("show the busiest routes, tools, models and keys of the last minute, live")
    .option("--by <kind>", "only route, tool, model or key")
    .option("--interval <seconds>", "time between two refreshes (default 2)")
    .option("--once", "print it once")
    .option("-o, --output <format>", "text, json (one object per refresh) or yaml", "text")
    .action(async (name, flags) => (await import("./commands/top-command.ts")).top(name, flags, terminal));
  withTarget(program.command("explain <request-id> [instance]"))
    .description("explain what happened to a request, by the x-request-id of its response")
    .option(...OUTPUT)
    .action(async (id, name, flags) =>
      (await import("./commands/requests-command.ts")).explain(id, name, flags, terminal),
    );

  addProxyCommands(program, terminal, request);

  withTarget(program.command("upgrade [instance]"))
    .description("start the new version of the program and hand the sockets and sessions over to it")
    .action(async (name, flags) => (await import("./commands/process-command.ts")).upgrade(name, flags, terminal));

  withTarget(program.command("requests [instance]"))
    .description("list recent requests, the newest last")
    .option("--failed", "only requests that were rejected or failed")
    .option("--since <time>", "only since a time, or an age such as 15m, 2h, or 7d")
    .option("--route <name>", "only of this route")
    .option("--status <status>", "only with this status, or class of statuses such as 5xx")
    .option("--key <name>", "only of this API key or user")
    .option("--model <name>", "only of this model")
    .option("--tool <name>", "only calls of this MCP tool")
    .option("--follow", "stream requests as they finish, until Ctrl-C")
    .option("--limit <n>", "number of requests, up to 10000 (default 20)")
    .option("--before <time>", "older requests, for example 2026-11-17T03:00:00Z; config.history keeps them")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/requests-command.ts")).requests(name, flags, terminal));

  configTableCommand(program, "routes", terminal);
  limitsCommand(program.command("limits"), terminal);
  withTarget(program.command("sessions [instance]"))
    .description("list the open MCP sessions")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/sessions-command.ts")).sessions(name, flags, terminal));

  withTarget(program.command("policies [instance]"))
    .description("list every policy, where it applies, and its status")
    .option("-f, --file <dump.json>", "read a saved /config_dump instead of a gateway")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/config-command.ts")).policies(name, flags, terminal));

  withTarget(program.command("usage [instance]"))
    .description("report requests, tokens and cost from the history database (config.history)")
    .option("--by <names>", "team, key, user, route, model, provider, server, tool, hour, day; comma-separated")
    .option("--since <time>", "a time, a date, or an age such as 30d (default 24h)")
    .option("--until <time>", "a time, a date, or an age (default: now)")
    .option("--filter <name=value...>", "only requests with this value, for example team=research")
    .option("--limit <n>", "number of rows (default 1000)")
    .option("-o, --output <format>", "table, json, yaml or csv", "table")
    .action(async (name, flags) => (await import("./commands/usage-command.ts")).usage(name, flags, terminal));

  const history = withTarget(program.command("history"))
    .enablePositionalOptions()
    .description("show and clean up the history database");
  withTarget(history.command("status [instance]"))
    .description("show whether the database can be used, and how many rows are stored, waiting and dropped")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/usage-command.ts")).historyStatus(name, flags, terminal));
  withTarget(history.command("budgets [instance]"))
    .description("compare the spending of budgets with the history database")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/usage-command.ts")).historyBudgets(name, flags, terminal));
  withTarget(history.command("delete [instance]"))
    .description("delete the rows of a user")
    .requiredOption("--subject <name>", "the subject of the requests")
    .action(async (name, flags) => (await import("./commands/usage-command.ts")).deleteHistory(name, flags, terminal));

  withTarget(program.command("budgets [instance]"))
    .description("show budgets and their spending")
    .option("--key <text>", "only keys with this text")
    .option(...OUTPUT)
    .action(async (name, flags) =>
      (await import("./commands/inspect-command.ts")).inspect("budgets", name, flags, terminal),
    );

  const keys = withTarget(program.command("keys"))
    .enablePositionalOptions()
    .description("create, list, and revoke API keys in the store");
  createKeyCommand(keys.command("create [instance]"), terminal);
  createKeyCommand(keys.command("make [instance]", { hidden: true }), terminal);
  withTarget(keys.command("list [instance]"))
    .description("list the API keys, without the keys themselves")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/keys-command.ts")).listKeys(name, flags, terminal));
  withTarget(keys.command("revoke <id> [instance]"))
    .description("revoke an API key by its id")
    .action(async (id, name, flags) =>
      (await import("./commands/keys-command.ts")).revokeKey(id, name, flags, terminal),
    );

  program
    .command("prices")
    .description("import model prices")
    .command("import <file>")
    .description("make a modelCatalog from LiteLLM's model_prices_and_context_window.json")
    .option("--provider <name...>", "only these providers, for example openai gcp.gemini")
    .option("-o, --output <format>", "json or yaml, or a file to write (default: json on standard output)")
    .action(async (file, flags) => (await import("./commands/prices-command.ts")).importPrices(file, flags, terminal));

  const gateway = program.command("gateway").description("list Gateways of a Kubernetes cluster");
  gateway
    .command("list")
    .description("list the Gateways of a namespace with their addresses, status and routes")
    .option("-n, --namespace <name>", "namespace (default: that of the kubeconfig)")
    .option("-A, --all-namespaces", "all namespaces")
    .option("-k, --kubeconfig <file>", "kubeconfig of the cluster")
    .option("--context <name>", "context in the kubeconfig")
    .option(...OUTPUT)
    .action(async (flags) => (await import("./cluster/gateway-list.ts")).listGateways(flags, terminal));

  withTarget(program.command("cel <expression>"))
    .description("evaluate a CEL expression, part by part")
    .option("--request <id>", "use the attributes of a recent request")
    .option("--exit-code", "exit with 1 unless the result is true")
    .option(...OUTPUT)
    .action(async (expression, flags) =>
      (await import("./commands/inspect-command.ts")).cel(expression, flags, terminal),
    );

  withTarget(
    program
      .command("shadow")
      .description("report what policies in shadow mode would deny")
      .command("report [instance]"),
  )
    .description("list requests that policies in shadow mode would deny, by subject and rule")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/report-command.ts")).shadowReport(name, flags, terminal));

  withTarget(program.command("mirror").description("compare mirrored responses").command("report [instance]"))
    .description("list how responses of mirrors differ from the backends', where requestMirror compares them")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/report-command.ts")).mirrorReport(name, flags, terminal));

  withTarget(program.command("record [instance]"))
    .description("record requests into a file, without bodies and credentials")
    .requiredOption("-o, --output <file>", "where to write, one JSON object per line")
    .option("--last", "the requests that the gateway remembers, instead of those to come")
    .option("--count <n>", "stop after this many", "10000")
    .option("--seconds <n>", "stop after this time")
    .option("--sample <share>", "the share of requests to record, from 0 to 1", "1")
    .action(async (name, flags) => (await import("./commands/replay-command.ts")).record(name, flags, terminal));

  withTarget(program.command("replay <file>"))
    .description("send recorded requests to a gateway and compare its responses with the recording")
    .requiredOption("--to <url>", "the gateway, for example http://localhost:3000")
    .option("--speed <factor>", "1: at the pace of the recording, 2: twice as fast, max: at once", "1")
    .option("--concurrency <n>", "requests at the same time", "16")
    .option("--methods <list>", "methods that are sent; recordings have no bodies", "GET,HEAD,OPTIONS")
    .option("-H, --header <name: value...>", "headers to add, for example a credential")
    .option("--policies", "also compare routes and verdicts, from the gateway's admin interface")
    .option(...OUTPUT)
    .action(async (file, flags) => (await import("./commands/replay-command.ts")).replay(file, flags, terminal));

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
    .option("--exit-code", "exit with 1 if the gateway would reject the request")
    .option(...OUTPUT)
    .action(async (method, url, flags) =>
      (await import("./commands/what-if-command.ts")).whatIf(method, url, flags, terminal),
    );

  withTarget(program.command("access [instance]"))
    .description("show which routes, tools and models each known client may use, and why, without traffic")
    .option("--who-can <item...>", "only these: route:name, tool:server/name or model:name")
    .option("--what-can <client>", "only clients with this name, or with this claim or key metadata: team:research")
    .option("--principals <file>", "also review the claim sets of a file: a list of {name, claims}")
    .option("--diff <file...>", "compare with a new configuration: who gains and who loses access")
    .option("--denied", "with --who-can and --what-can, also show denials")
    .option("--exit-code", "with --diff, exit with 1 if access changes")
    .option("-o, --output <format>", "text, json, yaml or csv", "text")
    .action(async (name, flags) => (await import("./commands/access-command.ts")).access(name, flags, terminal));

  const mcp = withTarget(program.command("mcp"))
    .enablePositionalOptions()
    .description("MCP servers: their state, tools and accounts");
  serversCommand(mcp.command("servers"), terminal);
  withTarget(mcp.command("tools [instance]"))
    .description("list the tools of the MCP servers, with the names that clients see")
    .option("--server <name>", "only tools of this server")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/mcp-tools-command.ts")).mcpTools(name, flags, terminal));
  withTarget(mcp.command("lock [instance]"))
    .description("write the tools of the MCP servers to the lock file, and show changes (see toolsLock)")
    .option("--lock-file <file>", "the lock file", "tools.lock")
    .option("--check", "write nothing; exit with 1 if anything differs")
    .option("--only <target/tool...>", "accept only these tools")
    .option("--accept-suspicious", "also accept tools whose texts look like instructions to a model")
    .option("--backend <name>", "the MCP backend, if there are several")
    .action(async (name, flags) => (await import("./commands/mcp-command.ts")).mcpLock(name, flags, terminal));
  withTarget(mcp.command("connections [instance]"))
    .description("list accounts that users connected at MCP servers; test or revoke one")
    .option("--test <id>", "check whether the server accepts the account's token")
    .option("--revoke <id>", "forget the account's tokens, here and at the server")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/mcp-command.ts")).mcpConnections(name, flags, terminal));

  program
    .command("auth")
    .description("check the logins of a configuration")
    .command("check")
    .description("check every login of a configuration with its identity provider, step by step")
    .requiredOption("-f, --file <path...>", "configuration files or folders; - for standard input")
    .option("--token-file <file>", "also check this access token; - for standard input")
    .option(...OUTPUT)
    .action(async (flags) => (await import("./commands/auth-check-command.ts")).authCheck(flags, terminal));

  program
    .command("validate")
    .description("check configuration files without a running gateway")
    .requiredOption("-f, --file <path...>", "configuration files or folders; - for standard input")
    .option("--strict", "also reject warnings")
    .option("--allow-missing-env", "report unset environment variables as notes")
    .option("-o, --output <format>", "text, json, yaml or github (annotations)", "text")
    .action(async (flags) => (await import("./commands/validate-command.ts")).validate(flags, terminal));

  program
    .command("import <file> [older-file]")
    .usage("[options] <file>")
    .description("convert an agentgateway, LiteLLM, or supergateway configuration, or an mcpServers file")
    .option("--from <kind>", "agentgateway, litellm, supergateway or mcpServers (default: found from the file)")
    .option("-o, --output <format>", "yaml or json (without comments)", "yaml")
    .action(async (file, olderFile, flags) =>
      (await import("./commands/import-command.ts")).importConfig(file, olderFile, flags, terminal),
    );

  program
    .command("version")
    .description("print the version")
    .option(...OUTPUT)
    .action((flags: { output?: string }) => {
      const format = formatOf(flags.output, FORMATS);
      if (isData(format)) printData({ version: VERSION }, format, terminal);
      else terminal.out(`gwctl ${VERSION}\n`);
    });

  program
    .command("completion <shell>")
    .description("print completion for bash, zsh or fish: source <(gwctl completion bash)")
    .action(async (shell) => terminal.out((await import("./commands/completion.ts")).completionScript(program, shell)));

  program
    .command("complete-names <kind>", { hidden: true })
    .description("names of a running gateway for shell completion, one per line")
    .action(async (kind, _flags, command: Command) =>
      (await import("./commands/completion.ts")).liveNames(kind, command.optsWithGlobals(), terminal),
    );
  program.commandsGroup(OTHER_COMMANDS);
  for (const command of program.commands) command.helpGroup(groupOf(command.name()));
  addExamples(program, terminal.columns ?? DEFAULT_COLUMNS);
  return program;
}

const OTHER_COMMANDS = "gwctl:";
const COMMAND_GROUPS: readonly (readonly [heading: string, names: readonly string[]])[] = [
  ["What happens now:", ["status", "top", "requests", "explain", "sessions", "mcp", "proxy"]],
  ["Configuration:", ["routes", "policies", "what-if", "access", "cel", "validate", "import", "auth"]],
  ["Limits, keys, and cost:", ["limits", "budgets", "keys", "usage", "history", "prices"]],
  ["Changes and rollouts:", ["shadow", "mirror", "record", "replay", "upgrade", "gateway"]],
];

function groupOf(name: string): string {
  return COMMAND_GROUPS.find(([, names]) => names.includes(name))?.[0] ?? OTHER_COMMANDS;
}

/** A flag at an outer level applies unless the command sets it. */
function inheritFlags(command: Command): void {
  for (let above = command.parent; above; above = above.parent)
    for (const [name, value] of Object.entries(above.opts()))
      if (command.getOptionValue(name) === undefined) command.setOptionValueWithSource(name, value, "cli");
}

const OUTPUT = ["-o, --output <format>", "text, json or yaml", "text"] as const;

const INSTANCE = "gateway/<name> or pod/<name> in a cluster; default: the gateway on this machine";

function addProxyCommands(program: Command, terminal: Terminal, request: readonly string[] | undefined): void {
  const proxy = withTarget(program.command("proxy"))
    .enablePositionalOptions()
    .description("inspect one gateway: trace, configuration, profiles, log");

  withTarget(proxy.command("trace").argument("[instance]", INSTANCE))
    .description("trace the next request, or send one and trace it (experimental)")
    .usage("[instance] [options] [-- <url> [curl arguments]]")
    .option("--raw", "print JSON lines instead of opening the terminal UI")
    .option("--port <port>", "send the request after -- to this listener port")
    .option("--expression <cel>", "wait for a request that matches, for example 'request.path == \"/mcp\"'")
    .option("--count <n>", "trace that many requests instead of one")
    .option("-f, --file <file>", "show a saved trace (JSON lines; - for standard input)")
    .action(async (name, flags) => (await import("./commands/trace-command.ts")).trace(name, flags, request, terminal));

  addConfig(proxy, terminal);
  addProfile(proxy, terminal);

  withTarget(proxy.command("log").argument("[instance]", INSTANCE))
    .description("show the log level, or set it until the gateway restarts")
    .option("--level <filter>", "replace the filter: error, warn, info, debug, trace, or info,mcp=trace")
    .option("--set <module=level...>", "change single modules and keep the rest")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/process-command.ts")).log(name, flags, terminal));

  // Names of earlier versions.
  serversCommand(proxy.command("targets", { hidden: true }), terminal);
  limitsCommand(proxy.command("limits", { hidden: true }), terminal);

  for (const [what, text] of [
    ["memory", "show memory of the process and its components"],
    ["tasks", "show listeners, open requests, sessions and child processes"],
  ] as const)
    withTarget(proxy.command(what).argument("[instance]", INSTANCE))
      .description(text)
      .option(...OUTPUT)
      .action(async (name, flags) =>
        (await import("./commands/inspect-command.ts")).inspect(what, name, flags, terminal),
      );
}

function createKeyCommand(command: Command, terminal: Terminal): void {
  withTarget(command)
    .description("create an API key and print it, once")
    .requiredOption("--name <text>", "whose key it is")
    .option(
      "--for-namespace <name>",
      "only documents of this namespace accept it (default: the standalone configuration)",
    )
    .option("--expires <when>", "a duration such as 90d, or a date such as 2027-01-31 (default: never)")
    .option("--models <names>", "the models it may use, comma-separated, each with at most one * (default: all)")
    .option("--cost <dollars>", "a budget in US dollars, with --per")
    .option("--tokens <n>", "a budget in tokens, with --per")
    .option("--per <period>", "day, week or month")
    .option("--metadata <name=value...>", "readable as apiKey.<name> in expressions")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/keys-command.ts")).createKey(name, flags, terminal));
}

function limitsCommand(command: Command, terminal: Terminal): void {
  withTarget(command.argument("[instance]", INSTANCE))
    .description("show rate limit rules and their buckets")
    .option("--key <text>", "only buckets with this text in their key")
    .option(...OUTPUT)
    .action(async (name, flags) =>
      (await import("./commands/inspect-command.ts")).inspect("limits", name, flags, terminal),
    );
}

function serversCommand(command: Command, terminal: Terminal): void {
  withTarget(command.argument("[instance]", INSTANCE))
    .description("list the MCP servers: which failed, and why")
    .option(...OUTPUT)
    .action(async (name, flags) => (await import("./commands/mcp-servers-command.ts")).servers(name, flags, terminal));
}

function configTableCommand(parent: Command, part: "listeners" | "routes" | "backends", terminal: Terminal): void {
  withTarget(parent.command(part).argument("[instance]", INSTANCE))
    .description(`show the ${part} as a table`)
    .option("-f, --file <dump.json>", "read a saved /config_dump instead of a gateway; - for standard input")
    .option(...OUTPUT)
    .action(async (name, flags) =>
      (await import("./commands/config-command.ts")).configTable(part, name, flags, terminal),
    );
}

function addConfig(proxy: Command, terminal: Terminal): void {
  const config = withTarget(proxy.command("config"))
    .enablePositionalOptions()
    .description("show the loaded configuration of a gateway or a saved dump");
  withTarget(config.command("all").argument("[instance]", INSTANCE))
    .description("show everything")
    .option("-f, --file <dump.json>", "read a saved /config_dump instead of a gateway; - for standard input")
    .option("-o, --output <format>", "yaml or json", "yaml")
    .action(async (name, flags) => (await import("./commands/config-command.ts")).configAll(name, flags, terminal));
  for (const part of ["listeners", "routes", "backends"] as const) configTableCommand(config, part, terminal);
}

function addProfile(proxy: Command, terminal: Terminal): void {
  const profile = withTarget(proxy.command("profile"))
    .enablePositionalOptions()
    .description("write a profile for `go tool pprof`");
  withTarget(profile.command("cpu").argument("[instance]", INSTANCE))
    .description("CPU profile (Linux only)")
    .option("--seconds <n>", "duration in seconds, 1 to 300 (default 30)")
    .option("-o, --output <file>", "default: gwctl-cpu-<timestamp>.pb.gz in the working directory")
    .action(async (name, flags) =>
      (await import("./commands/process-command.ts")).profile("cpu", name, flags, terminal),
    );
  withTarget(profile.command("heap").argument("[instance]", INSTANCE))
    .description("heap profile: allocated memory that is still in use (samples on Linux only)")
    .option("-o, --output <file>", "default: gwctl-heap-<timestamp>.pb.gz in the working directory")
    .action(async (name, flags) =>
      (await import("./commands/process-command.ts")).profile("heap", name, flags, terminal),
    );
}

/** Returns the command that the arguments call, and its arguments that are neither options nor values of options. */
function calledCommand(program: Command, argv: readonly string[]): { command: Command; rest: string[] } {
  let command = program;
  const rest: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const argument = argv[i] ?? "";
    if (argument.startsWith("-")) {
      const option = command.options.find(({ short, long }) => argument === short || argument === long);
      if (option?.required) i += 1;
      continue;
    }
    const child = rest.length === 0 ? command.commands.find((one) => isNamed(one, argument)) : undefined;
    if (child === undefined) rest.push(argument);
    else command = child;
  }
  return { command, rest };
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

function isNamed(command: Command, name: string): boolean {
  return command.name() === name || command.aliases().includes(name);
}

function commandList(parent: Command): string {
  const names = visibleCommands(parent).map((one) => one.name());
  return `Commands of ${pathOf(parent)}: ${names.join(", ")}`;
}

/** Returns the full commands for a shortened one, such as `gwctl proxy trace` for `gwctl trace`. */
function misplacedCommand(program: Command, word: string): readonly string[] {
  return program.commands.some((one) => isNamed(one, word)) ? [] : pathsTo(program, word, program.name());
}

function visibleCommands(parent: Command): Command[] {
  return parent.createHelp().visibleCommands(parent);
}

function pathsTo(parent: Command, name: string, path: string): string[] {
  return visibleCommands(parent).flatMap((one) => {
    const own = `${path} ${one.name()}`;
    return [...(one.name() === name ? [own] : []), ...pathsTo(one, name, own)];
  });
}
