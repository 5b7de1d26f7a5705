/**
 * `gwctl proxy config` prints the configuration of a running gateway, or a saved `/config_dump`, as YAML, JSON, or a
 * table. `gwctl policies` lists every policy with its target and configuration.
 */
import { readFileSync, statSync } from "node:fs";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { percentText } from "../../base/format.ts";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { MESSAGE_CHARS, SUMMARY_CHARS, table } from "../terminal/table.ts";
import { CliError, paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { listOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

const DUMP = peerInput("file/configuration-dump");

const CONFIG_FORMATS = ["yaml", "json"] as const;

export interface ConfigFlags extends TargetFlags {
  readonly file?: string;
  readonly output?: string;
}

export interface ConfigDump {
  readonly listeners?: readonly { name: string; port: number; protocol: string; routes: readonly string[] }[];
  readonly routes?: readonly {
    name: string;
    hostnames?: readonly string[];
    matches?: readonly unknown[];
    policies?: Readonly<Record<string, unknown>>;
    backends?: readonly { name: string; weight: number }[];
  }[];
  readonly backends?: readonly { name: string; type: string; protocol: string; [key: string]: unknown }[];
  readonly policies?: readonly PolicyEntry[];
  readonly version?: unknown;
  readonly [key: string]: unknown;
}

export interface PolicyEntry {
  readonly kind: string;
  readonly target?: Readonly<Record<string, string>>;
  readonly policy?: unknown;
  readonly [key: string]: unknown;
}

export async function configAll(name: string | undefined, flags: ConfigFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, CONFIG_FORMATS);
  printData(await loadDump(name, flags, terminal), format, terminal);
}

export async function configTable(
  part: "listeners" | "routes" | "backends",
  name: string | undefined,
  flags: ConfigFlags,
  terminal: Terminal,
): Promise<void> {
  const format = tableFormat(flags.output);
  const dump = await loadDump(name, flags, terminal);
  if (isData(format)) printData(dump[part] ?? [], format, terminal);
  else {
    const maxLastChars = part === "backends" ? SUMMARY_CHARS : MESSAGE_CHARS;
    terminal.out(table(rowsOf(part, dump), { paint: paintOf(terminal), maxLastChars }));
  }
}

export async function loadDump(name: string | undefined, flags: ConfigFlags, terminal: Terminal): Promise<ConfigDump> {
  if (flags.file === undefined) {
    const { admin } = await openTarget(name, flags, terminal);
    try {
      return await admin.json<ConfigDump>(ADMIN_PATHS.configDump, "routes");
    } finally {
      admin.close();
    }
  }
  if (name !== undefined || flags.local)
    throw usageError("--file reads a saved dump and cannot be combined with an instance");
  return readDump(flags.file, terminal);
}

function readDump(path: string, terminal: Terminal): ConfigDump {
  let value: unknown;
  try {
    if (path !== "-" && statSync(path).size > DUMP.maxBytes) throw new CliError("larger than 64 MiB");
    value = readJson(DUMP, path === "-" ? terminal.readStdin() : readFileSync(path, "utf8"));
  } catch (error) {
    const reason = notJson(error) ?? (error as Error).message;
    throw new CliError(`failed to read config dump file ${path}: ${printable(reason)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new CliError(`${path} is not a config dump: save one with \`curl <admin address>/config_dump\``);
  return value as ConfigDump;
}

/** `short` is an older name of `text`. */
function tableFormat(output: string | undefined): (typeof FORMATS)[number] {
  return formatOf(output === "short" ? "text" : output, FORMATS);
}

function rowsOf(part: "listeners" | "routes" | "backends", dump: ConfigDump): string[][] {
  if (part === "listeners")
    return [
      ["NAME", "PORT", "PROTOCOL", "ROUTES"],
      ...(dump.listeners ?? []).map((one) => [one.name, String(one.port), one.protocol, one.routes.join(", ")]),
    ];
  if (part === "routes")
    return [
      ["NAME", "HOSTNAMES", "MATCHES", "POLICIES", "BACKENDS"],
      ...(dump.routes ?? []).map((one) => [
        one.name,
        one.hostnames?.join(", ") || "*",
        (one.matches ?? []).map(matchText).join(", "),
        Object.keys(one.policies ?? {}).join(", ") || "-",
        backendsText(one.backends ?? [], dump.backends ?? []),
      ]),
    ];
  return [
    ["NAME", "TYPE", "PROTOCOL", "TARGET"],
    ...(dump.backends ?? []).map(({ name, type, protocol, policies: _policies, connections: _open, ...rest }) => [
      name,
      type,
      protocol,
      typeof rest.host === "string" ? rest.host : JSON.stringify(rest),
    ]),
  ];
}

interface Canary {
  readonly share?: number;
  readonly when?: string;
}

/** Names the servers, and how the requests are divided between them. */
function backendsText(
  routed: readonly { name: string; weight: number }[],
  backends: NonNullable<ConfigDump["backends"]>,
): string {
  const all = routed.map((one) => {
    const backend = backends.find(({ name }) => name === one.name);
    return { ...one, server: serverText(one.name, backend), canary: backend?.canary as Canary | undefined };
  });
  const weighted = all.filter(({ canary }) => canary === undefined);
  const total = weighted.reduce((sum, { weight }) => sum + weight, 0);
  const texts = all.map(({ server, weight, canary }) => {
    if (canary !== undefined) return `${server} (canary, ${canary.when ?? `${canary.share}%`})`;
    return weighted.length === 1 || total === 0 ? server : `${server} (${percentText(weight / total)})`;
  });
  return texts.join(", ") || "-";
}

function serverText(name: string, backend: NonNullable<ConfigDump["backends"]>[number] | undefined): string {
  if (typeof backend?.host === "string") return backend.host;
  const targets = listOf(backend?.targets).map((target) => String(target.name));
  return targets.length === 0 ? name : targets.join(" + ");
}

function matchText(match: unknown): string {
  const { path, method } = match as { path?: { exact?: string; pathPrefix?: string; regex?: string }; method?: string };
  const where = path?.exact ?? (path?.pathPrefix === undefined ? `~${path?.regex ?? ""}` : `${path.pathPrefix}*`);
  return method === undefined ? where : `${method} ${where}`;
}

export async function policies(name: string | undefined, flags: ConfigFlags, terminal: Terminal): Promise<void> {
  const format = tableFormat(flags.output);
  const entries = (await loadDump(name, flags, terminal)).policies ?? [];
  if (isData(format)) printData(entries, format, terminal);
  else if (entries.length === 0) terminal.err("no policies\n");
  else {
    const options = { paint: paintOf(terminal), maxLastChars: SUMMARY_CHARS };
    terminal.out(table([["KIND", "ON", "STATUS", "POLICY"], ...entries.map(row)], options));
  }
}

function row(entry: PolicyEntry): string[] {
  if (entry.target !== undefined) {
    const [kind, target] = Object.entries(entry.target)[0] ?? ["", ""];
    return [entry.kind, `${kind}/${target}`, "-", JSON.stringify(entry.policy)];
  }
  const { metadata, spec } = entry as {
    metadata?: { name?: string; namespace?: string };
    spec?: {
      targetRefs?: readonly { kind: string; name: string }[];
      targetSelectors?: readonly { kind: string; matchLabels?: object }[];
      traffic?: unknown;
    };
  };
  const named = (spec?.targetRefs ?? []).map(({ kind, name }) => `${kind}/${name}`);
  const selected = (spec?.targetSelectors ?? []).map(
    ({ kind, matchLabels = {} }) =>
      `${kind}(${Object.entries(matchLabels).map(([name, value]) => `${name}=${value}`)})`,
  );
  const refs = [...named, ...selected].join(", ");
  return [`${entry.kind}/${metadata?.name ?? "?"}`, refs, conditions(entry), JSON.stringify(spec?.traffic ?? {})];
}

function conditions(entry: PolicyEntry): string {
  const { ancestors = [] } = (entry.status ?? {}) as {
    ancestors?: readonly { conditions?: readonly { type: string; status: string }[] }[];
  };
  const all = ancestors.flatMap(({ conditions: list = [] }) => list.map(({ type, status }) => `${type}=${status}`));
  return [...new Set(all)].join(" ") || "-";
}

/** Quotes the place of the problem, because the file belongs to the user. */
function notJson(error: unknown): string | undefined {
  if (!(error instanceof InputError)) return undefined;
  return error.cause instanceof SyntaxError ? `not JSON (${error.cause.message})` : error.message;
}
