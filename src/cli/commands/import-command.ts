/**
 * `gwctl import <file>` converts another program's configuration, validates the result with the gateway's
 * loader, and prints it. Comments at the top list what was omitted or works differently.
 */
import { readFileSync } from "node:fs";
import { peerInput } from "../../base/peer-inputs.ts";
import { readYaml } from "../../base/read-yaml.ts";
import { finish } from "../../base/sliced-work.ts";
import { yamlText } from "../../base/yaml-text.ts";
import { formatOf, printData } from "../terminal/output.ts";
import { CliError, printable, type Terminal, usageError } from "../terminal/terminal.ts";

const IMPORTED = peerInput("file/imported-configuration");

type Conversion = import("../../config/import/conversion.ts").Conversion;
type Check = import("../../config/import/drop-invalid.ts").Check;
type Convert = (text: string) => Promise<Conversion>;

const KINDS: Readonly<Record<string, Convert>> = {
  mcpServers: async (text) =>
    (await import("../../config/import/mcp-servers.ts")).importMcpServers(readYaml(IMPORTED, withoutComments(text))),
  agentgateway: async (text) =>
    (await import("../../config/import/agentgateway.ts")).importAgentgateway(readYaml(IMPORTED, text)),
  litellm: async (text) => (await import("../../config/import/litellm.ts")).importLitellm(readYaml(IMPORTED, text)),
  supergateway: async (text) => (await import("../../config/import/supergateway.ts")).importSupergateway(text),
};

export interface ImportFlags {
  readonly from?: string;
  readonly output?: string;
}

/** `gwctl import <kind> <file>`, the form of earlier versions, passes the kind first. */
export async function importConfig(
  first: string,
  second: string | undefined,
  flags: ImportFlags,
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, ["yaml", "json"]);
  const file = second ?? first;
  const named = flags.from ?? (second === undefined ? undefined : first);
  if (named !== undefined && !Object.hasOwn(KINDS, named))
    throw usageError(`there is no import of ${named}; there is ${Object.keys(KINDS).join(", ")}`);
  const [{ loadConfig }, { dropInvalid }] = await Promise.all([
    import("../../config/load/load.ts"),
    import("../../config/import/drop-invalid.ts"),
  ]);
  const check: Check = (config, environment) => {
    const variables = { ...environment, ...terminal.environment };
    const loaded = finish(loadConfig([{ file: "imported", text: yamlText(config) }], variables));
    return loaded.ok ? [] : loaded.problems;
  };
  let conversion: Conversion;
  let kind: string;
  try {
    const text = readText(file, terminal);
    if (named === undefined && finish(loadConfig([{ file, text }], terminal.environment)).ok)
      throw new Error("it is a valid configuration of this gateway already; use --from to convert it");
    kind = named ?? kindOf(text);
    conversion = await (KINDS[kind] as Convert)(text);
    dropInvalid(conversion, check);
  } catch (error) {
    throw new CliError(`cannot import ${file}: ${(error as Error).message.split("\n", 1)[0]}`);
  }
  if (format === "json") printData(conversion.config, format, terminal);
  else terminal.out(`${commentsOf(conversion, kind)}${yamlText(conversion.config)}`);
  const { leftOut, differs, closed } = conversion;
  terminal.err(
    `gwctl: ${leftOut.length} left out, ${differs.length} different, ${closed.length} closed: see the comments at the top\n`,
  );
}

/** Top-level fields that identify the program of a configuration. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  mcpServers: ["mcpServers", "mcpProxy", "servers"],
  litellm: ["model_list", "litellm_settings", "general_settings", "router_settings"],
  agentgateway: ["binds", "gateways", "routes", "frontendPolicies", "backends", "policies", "llm", "mcp", "config"],
};

function kindOf(text: string): string {
  const names = topLevelNames(text);
  if (names === undefined) {
    if (text.includes("--")) return "supergateway";
    throw new Error("the file is neither YAML, JSON nor a command line of supergateway");
  }
  const found = Object.entries(FIELDS).find(([, fields]) => fields.some((name) => names.includes(name)))?.[0];
  if (found === undefined) throw new Error(`its program is unknown; use --from ${Object.keys(KINDS).join(", ")}`);
  return found;
}

/** Returns undefined for text that is not an object. */
function topLevelNames(text: string): readonly string[] | undefined {
  try {
    const value = readYaml(IMPORTED, withoutComments(text));
    return typeof value === "object" && value !== null && !Array.isArray(value) ? Object.keys(value) : undefined;
  } catch {
    // A command line is not YAML.
    return undefined;
  }
}

function readText(file: string, terminal: Terminal): string {
  return file === "-" ? terminal.readStdin() : readFileSync(file, "utf8");
}

function withoutComments(text: string): string {
  return text.replaceAll(/^\s*\/\/.*$/gm, "");
}

function commentsOf({ leftOut, differs, closed }: Conversion, kind: string): string {
  const list = (title: string, lines: readonly string[]): string =>
    lines.length === 0 ? "" : `#\n# ${title}\n${[...new Set(lines)].map((line) => `# - ${oneLine(line)}\n`).join("")}`;
  return [
    `# Imported from ${kind} by gwctl. Check it: gateway --validate-only -f <this file>\n`,
    list("CLOSED: every request is rejected here (authorization) until you protect it another way:", closed),
    list("Left out:", leftOut),
    list("Works differently here:", differs),
    "\n",
  ].join("");
}

/** A line break would end the YAML comment. */
function oneLine(text: string): string {
  return printable(text.replaceAll(/\s+/g, " "));
}
