/**
 * `gwctl proxy …`: the commands about one running gateway, as a tree with its help. What a command does is loaded
 * when it is called.
 */
import type { Command } from "commander";
import { withTarget } from "./instance/target.ts";
import type { Terminal } from "./terminal/terminal.ts";

const INSTANCE = "gateway/<name> or pod/<name> in a cluster; default: the gateway on this machine";

export function addProxyCommands(program: Command, terminal: Terminal, request: readonly string[] | undefined): void {
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
    .action(async (name, flags) => (await import("./commands/log-command.ts")).log(name, flags, terminal));

  withTarget(proxy.command("targets").argument("[instance]", INSTANCE))
    .description("list the MCP servers: which failed, and why")
    .option("-o, --output <format>", "text or json", "text")
    .action(async (name, flags) => (await import("./commands/targets-command.ts")).targets(name, flags, terminal));

  for (const [what, text] of [
    ["memory", "show memory of the process and its components"],
    ["tasks", "show listeners, open requests, sessions and child processes"],
    ["limits", "show rate limit rules and their buckets"],
  ] as const) {
    const command = withTarget(proxy.command(what).argument("[instance]", INSTANCE))
      .description(text)
      .option("-o, --output <format>", "text or json", "text")
      .action(async (name, flags) =>
        (await import("./commands/inspect-command.ts")).inspect(what, name, flags, terminal),
      );
    if (what === "limits") command.option("--key <text>", "only buckets with this text in their key");
  }
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
  for (const part of ["listeners", "routes", "backends"] as const)
    withTarget(config.command(part).argument("[instance]", INSTANCE))
      .description(`show the ${part} as a table`)
      .option("-f, --file <dump.json>", "read a saved /config_dump instead of a gateway; - for standard input")
      .option("-o, --output <format>", "short, yaml or json", "short")
      .action(async (name, flags) =>
        (await import("./commands/config-command.ts")).configTable(part, name, flags, terminal),
      );
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
      (await import("./commands/profile-command.ts")).profile("cpu", name, flags, terminal),
    );
  withTarget(profile.command("heap").argument("[instance]", INSTANCE))
    .description("heap profile: allocated memory that is still in use (samples on Linux only)")
    .option("-o, --output <file>", "default: gwctl-heap-<timestamp>.pb.gz in the working directory")
    .action(async (name, flags) =>
      (await import("./commands/profile-command.ts")).profile("heap", name, flags, terminal),
    );
}
