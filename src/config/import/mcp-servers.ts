/**
 * Converts an MCP client's list of servers (`mcpServers`, or `servers` in VS Code). The servers become targets of one
 * endpoint.
 */
import {
  asList,
  asObject,
  type Conversion,
  isObject,
  leaveOutOthers,
  newConversion,
  type Values,
} from "./conversion.ts";

const TAKEN = [
  "command",
  "args",
  "env",
  "cwd",
  "type",
  "transport",
  "url",
  "serverUrl",
  "httpUrl",
  "headers",
  "disabled",
];
const BETWEEN_CLIENT_AND_SERVER = "belongs to the client; the gateway has no counterpart";

export function importMcpServers(source: unknown): Conversion {
  const document = asObject(source);
  const servers = asObject(document.mcpServers ?? document.servers ?? asObject(document.mcp).servers);
  if (Object.keys(servers).length === 0) throw new Error("there is no `mcpServers` (or `servers`) with an entry");
  const targets: Values[] = [];
  const conversion = newConversion({ mcp: { port: 3000, address: "127.0.0.1", targets } });
  for (const [key, entry] of Object.entries(servers)) {
    if (!isObject(entry)) continue;
    const at = `mcpServers.${key}`;
    if (entry.disabled === true) {
      conversion.leftOut.push(`${at}: it is disabled`);
      continue;
    }
    const target = targetOf(entry, targetName(key, conversion), conversion);
    if (target) targets.push(target);
    else conversion.leftOut.push(`${at}: it has neither \`command\` nor \`url\``);
    leaveOutOthers(conversion, `${at}.`, entry, TAKEN, BETWEEN_CLIENT_AND_SERVER);
  }
  leaveOutOthers(conversion, "", document, ["mcpServers", "servers", "mcp"], BETWEEN_CLIENT_AND_SERVER);
  if (targets.length > 1)
    conversion.differs.push(
      "names of tools carry their server's name (`files_read_file`); `prefixMode: never` keeps them",
    );
  return conversion;
}

export function targetOf(entry: Values, name: string, conversion: Conversion): Values | undefined {
  const url = entry.url ?? entry.serverUrl ?? entry.httpUrl;
  if (typeof url === "string") {
    const kind = /sse/i.test(String(entry.type ?? entry.transport ?? "")) || /\/sse\/?$/.test(url) ? "sse" : "mcp";
    const headers = textValues(entry.headers, conversion);
    return { name, [kind]: { url: variables(url, conversion), ...(headers ? { headers } : {}) } };
  }
  if (typeof entry.command !== "string") return undefined;
  const [program = "", ...first] =
    entry.command.includes(" ") && entry.args === undefined ? words(entry.command) : [entry.command];
  const args = [...first, ...asList(entry.args).map(String)].map((text) => variables(text, conversion));
  const env = textValues(entry.env, conversion);
  noteOnce(conversion, `${name}: the server gets a safe part of the gateway's environment, and what \`env\` names`);
  if (args.some((arg) => arg.startsWith("~"))) conversion.differs.push(`${name}: \`~\` in an argument is not replaced`);
  return {
    name,
    stdio: {
      cmd: variables(program, conversion),
      ...(args.length > 0 ? { args } : {}),
      ...(env ? { env } : {}),
      ...(typeof entry.cwd === "string" ? { cwd: variables(entry.cwd, conversion) } : {}),
    },
  };
}

/** The name of a tool is the target name, an underscore, and the tool name, so target names contain no underscore. */
export function targetName(key: string, conversion: Conversion): string {
  const name = key.replaceAll(/[^A-Za-z0-9.-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "server";
  if (name !== key) conversion.differs.push(`${key}: is called ${name} here`);
  return name;
}

export function words(line: string): string[] {
  return [...line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)].map(([, double, single, plain]) =>
    double !== undefined ? double.replaceAll(/\\(.)/g, "$1") : (single ?? plain ?? ""),
  );
}

function textValues(values: unknown, conversion: Conversion): Record<string, string> | undefined {
  if (!isObject(values) || Object.keys(values).length === 0) return undefined;
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, variables(String(value), conversion)]),
  );
}

/** Rewrites variables of editors, such as `${env:NAME}` and `${input:name}`, to environment variables. */
function variables(text: string, conversion: Conversion): string {
  return text.replaceAll(
    /\$\{(env|input):([^}]+)\}|\$\{(\w+)\}/g,
    (whole, kind: string, name: string, plain: string) => {
      if (plain !== undefined && !/^(?:workspaceFolder|userHome|cwd)$/.test(plain)) return whole;
      const variable = (plain ?? name).replaceAll(/\W+/g, "_").toUpperCase();
      if (kind !== "env") noteOnce(conversion, `${whole} is the environment variable ${variable} of the gateway here`);
      return `\${${kind === "env" ? name : variable}}`;
    },
  );
}

function noteOnce(conversion: Conversion, line: string): void {
  if (!conversion.differs.includes(line)) conversion.differs.push(line);
}
