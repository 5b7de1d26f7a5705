/**
 * Selects the gateway that a command uses: the gateway on this machine (the default), on another port or socket, or
 * in a cluster (`gateway/<name>`).
 */
import type { Command } from "commander";
import { DEFAULT_ADMIN_PORT } from "../../admin/server/paths.ts";
import { usageError } from "../terminal/terminal.ts";
import type { AdminClient } from "./admin-client.ts";

export interface TargetFlags {
  readonly local?: boolean;
  readonly adminPort?: string;
  readonly adminSocket?: string;
  readonly namespace?: string;
  readonly kubeconfig?: string;
  readonly context?: string;
}

export interface Target {
  readonly admin: AdminClient;
  /** Resolves with a port on 127.0.0.1 that reaches the given port of the gateway. */
  listenerPort(port: number): Promise<number>;
}

/** Adds the options that select a gateway. Only the help of `gwctl` itself lists them. */
export function withTarget(command: Command): Command {
  addTargetOptions(command);
  for (const option of command.options) if (TARGET_FLAGS.has(option.long ?? "")) option.hideHelp();
  return command.addHelpText("after", OTHER_GATEWAY);
}

const TARGET_FLAGS = new Set(["--local", "--admin-port", "--admin-socket", "--namespace", "--kubeconfig", "--context"]);
const OTHER_GATEWAY = "\nAnother gateway: -p, --admin-socket, or gateway/<name> (see gwctl --help)";

export function addTargetOptions(command: Command): Command {
  return command
    .optionsGroup("Connection options, of every command:")
    .option("--local", "use the gateway on this machine (default)")
    .option(
      "-p, --admin-port <port>",
      `admin port of the gateway, or its loopback address such as [::1]:15000 (default ${DEFAULT_ADMIN_PORT})`,
    )
    .option("--admin-socket <path>", "unix socket of the admin interface (config.adminAddr: unix:<path>)")
    .option("-n, --namespace <name>", "namespace of the instance in a cluster")
    .option("-k, --kubeconfig <file>", "kubeconfig of the cluster")
    .option("--context <name>", "context in the kubeconfig")
    .optionsGroup("Options:");
}

/** Applies the environment variables. A flag overrides its variable. */
export function chosenTarget(
  name: string | undefined,
  flags: TargetFlags,
  environment: Readonly<Record<string, string | undefined>>,
): { readonly name: string | undefined; readonly flags: TargetFlags } {
  const variable = (key: string): string | undefined => environment[key] || undefined;
  const isHere = flags.local === true || flags.adminSocket !== undefined;
  const instance = name ?? (isHere ? undefined : variable("GWCTL_INSTANCE"));
  // An explicit port overrides GWCTL_ADMIN_SOCKET, and an instance in a cluster has no local socket.
  const socket = flags.adminPort === undefined && instance === undefined ? variable("GWCTL_ADMIN_SOCKET") : undefined;
  const from = <Key extends keyof TargetFlags>(key: Key, value: TargetFlags[Key] | undefined) =>
    flags[key] === undefined && value !== undefined ? { [key]: value } : {};
  return {
    name: instance,
    flags: {
      ...flags,
      ...from("adminPort", variable("GWCTL_ADMIN_PORT")),
      ...from("adminSocket", socket),
      ...from("namespace", variable("GWCTL_NAMESPACE")),
      ...from("context", variable("GWCTL_CONTEXT")),
    },
  };
}

const LOOPBACK_PORT = /^(?:\[(::1)\]|(127\.0\.0\.\d{1,3}|localhost)):(\d+)$/;

/** Reads a port, which is on 127.0.0.1, or `<loopback address>:<port>`. */
export function adminAddressOf(flag: string, text: string): { readonly host: string; readonly port: number } {
  if (!text.includes(":")) return { host: "127.0.0.1", port: portOf(flag, text) };
  const [, ipv6, ipv4, port = ""] = LOOPBACK_PORT.exec(text) ?? [];
  const host = ipv6 ?? ipv4;
  if (host === undefined)
    throw usageError(`invalid ${flag} ${text}: expected a port, or a loopback address such as [::1]:15000`);
  return { host, port: portOf(flag, port) };
}

export function portOf(flag: string, text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65535) throw usageError(`invalid ${flag} ${text}: expected a number from 1 to 65535`);
  return port;
}
