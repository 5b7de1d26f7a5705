/**
 * `gwctl proxy …`: the commands about one running gateway, as a tree with its help. What a command does is loaded
 * when it is called.
 */
import type { Command } from "commander";
import { withTarget } from "./instance/target.ts";
import type { Terminal } from "./terminal/terminal.ts";

const TARGET = "gateway/<name> or pod/<name> in a cluster; without it the gateway on this machine";

export function addProxyCommands(program: Command, terminal: Terminal, request: readonly string[] | undefined): void {
  const proxy = program.command("proxy").description("look into one gateway: trace, configuration, profiles, log");

  withTarget(proxy.command("trace").argument("[target]", TARGET))
    .description("trace the next request, or send one and trace it (experimental)")
    .usage("[target] [options] [-- <url> [curl arguments]]")
    .option("--raw", "print JSON lines instead of opening the terminal UI")
    .option("--port <port>", "send the request after -- to this listener port")
    .option("--expression <cel>", "wait for a request that matches, for example 'request.path == \"/mcp\"'")
    .option("--count <n>", "trace that many requests instead of one")
    .option("-f, --file <file>", "show a saved trace (JSON lines; - for standard input)")
    .addHelpText(
      "after",
      `
Examples:
  gwctl proxy trace --local                          wait for the next request, then step through it (q quits)
  gwctl proxy trace --local --raw > trace.jsonl      save it; gwctl proxy trace --file trace.jsonl shows it again
  gwctl proxy trace --local --port 3000 -- http://mcp.example.test/mcp -H 'accept: application/json'
                                                     send a request to 127.0.0.1:3000 and trace it; the URL's host
                                                     becomes the Host header and is not resolved
  gwctl proxy trace --local --expression 'request.method == "POST"' --count 3

The trace is experimental: its events may change between versions.`,
    )
    .action(async (name, flags) => (await import("./commands/trace-command.ts")).trace(name, flags, request, terminal));

  addConfig(proxy, terminal);
  addProfile(proxy, terminal);

  withTarget(proxy.command("log").argument("[target]", TARGET))
    .description("read or set the log level until the gateway's next start")
    .option("--level <filter>", "replace the filter: error, warn, info, debug, trace, or info,mcp=trace")
    .option("--set <module=level...>", "change single modules and keep the rest")
    .action(async (name, flags) => (await import("./commands/log-command.ts")).log(name, flags, terminal));

  withTarget(proxy.command("targets").argument("[target]", TARGET))
    .description("the MCP servers behind it: which are down, and why")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/targets-command.ts")).targets(name, flags, terminal));

  for (const [what, text] of [
    ["memory", "memory of the process and its parts"],
    ["tasks", "what lives in the process: listeners, requests, sessions, children"],
    ["limits", "rate limit rules and their buckets"],
  ] as const)
    withTarget(proxy.command(what).argument("[target]", TARGET))
      .description(text)
      .action(async (name, flags) =>
        (await import("./commands/inspect-command.ts")).inspect(what, name, flags, terminal),
      );
}

function addConfig(proxy: Command, terminal: Terminal): void {
  const config = proxy.command("config").description("the loaded configuration, of a gateway or a saved dump");
  withTarget(config.command("all").argument("[target]", TARGET))
    .description("everything")
    .option("-f, --file <dump.json>", "a saved /config_dump instead of a gateway; - for standard input")
    .option("-o, --output <format>", "yaml or json", "yaml")
    .action(async (name, flags) => (await import("./commands/config-command.ts")).configAll(name, flags, terminal));
  for (const part of ["listeners", "routes", "backends"] as const)
    withTarget(config.command(part).argument("[target]", TARGET))
      .description(`the ${part} as a table`)
      .option("-f, --file <dump.json>", "a saved /config_dump instead of a gateway; - for standard input")
      .option("-o, --output <format>", "short, yaml or json", "short")
      .action(async (name, flags) =>
        (await import("./commands/config-command.ts")).configTable(part, name, flags, terminal),
      );
}

function addProfile(proxy: Command, terminal: Terminal): void {
  const profile = proxy.command("profile").description("write a profile for `go tool pprof`");
  withTarget(profile.command("cpu").argument("[target]", TARGET))
    .description("where the gateway spends its time (Linux only)")
    .option("--seconds <n>", "how long, 1 to 300 (default 30)")
    .option("-o, --output <file>", "default: gwctl-cpu-<timestamp>.pb.gz in the working directory")
    .action(async (name, flags) =>
      (await import("./commands/profile-command.ts")).profile("cpu", name, flags, terminal),
    );
  withTarget(profile.command("heap").argument("[target]", TARGET))
    .description("what was allocated and still lives (samples on Linux only)")
    .option("-o, --output <file>", "default: gwctl-heap-<timestamp>.pb.gz in the working directory")
    .action(async (name, flags) =>
      (await import("./commands/profile-command.ts")).profile("heap", name, flags, terminal),
    );
}
