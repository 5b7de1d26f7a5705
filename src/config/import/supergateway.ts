/**
 * Converts command lines of supergateway, a stdio-to-HTTP bridge. Each line becomes a listener with one target.
 */
import { type Conversion, newConversion, type Values } from "./conversion.ts";
import { targetName, words } from "./mcp-servers.ts";

const DEFAULT_PORT = 8000;
const NEEDS_SHELL = /[|&;<>`]|\$\(/;
const ALWAYS = new Set(["outputTransport", "stateful"]);

type Flags = ReadonlyMap<string, readonly string[]>;

export function importSupergateway(text: string): Conversion {
  const lines = text
    .replaceAll(/\\\r?\n/g, " ")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line.includes("--") && !line.startsWith("#"));
  if (lines.length === 0) throw new Error('there is no command line with a flag, such as `supergateway --stdio "…"`');
  const gateways: Values = {};
  const routes: Values[] = [];
  const conversion = newConversion({ gateways, routes });
  for (const line of lines) addServer(flagsOf(ownWords(line)), conversion, gateways, routes);
  return conversion;
}

function addServer(flags: Flags, conversion: Conversion, gateways: Values, routes: Values[]): void {
  const target = targetOf(flags, conversion);
  if (!target) throw new Error("a command line has none of --stdio, --sse and --streamableHttp");
  const base = String(target.name);
  const name = base in gateways ? `${base}-${Object.keys(gateways).length + 1}` : base;
  gateways[name] = { port: Number(flags.get("port")?.[0] ?? DEFAULT_PORT), address: "127.0.0.1" };
  conversion.differs.push(`${name}: listens on loopback; take \`address\` out to listen on every interface`);
  const ttl = flags.get("sessionTimeout")?.[0];
  const path = flags.get("streamableHttpPath")?.[0];
  const policies = policiesOf(flags);
  routes.push({
    name,
    gateways: name,
    ...(path === undefined ? {} : { matches: [{ path: { exact: path } }] }),
    backends: [{ mcp: { targets: [target], ...(ttl === undefined ? {} : { sessionIdleTtl: `${ttl}ms` }) } }],
    ...(policies ? { policies } : {}),
  });
  const level = flags.get("logLevel")?.[0];
  if (level === "debug") conversion.config.config = { logging: { level } };
  else if (level === "none") conversion.config.config = { logging: { level: "error" } };
  for (const [flag, [value = ""]] of flags) noteFlag(flag, value, name, conversion);
}

function targetOf(flags: Flags, conversion: Conversion): Values | undefined {
  const [stdio] = flags.get("stdio") ?? [];
  if (stdio !== undefined) {
    const [cmd = "", ...args] = NEEDS_SHELL.test(stdio) ? ["sh", "-c", stdio] : words(stdio);
    if (cmd === "sh") conversion.differs.push("a command with shell characters is run by `sh -c`");
    const last = cmd === "sh" ? "server" : (args.find((arg) => /^[@\w].*[/-]/.test(arg)) ?? cmd);
    const name = targetName((last.split("/").at(-1) ?? cmd).replace(/@.*$/, "") || cmd, newConversion());
    if (flags.has("header")) conversion.leftOut.push(`--header: a process has none`);
    conversion.differs.push(
      `${name}: the server gets a safe part of the gateway's environment, and what \`env\` names`,
    );
    return { name, stdio: { cmd, ...(args.length > 0 ? { args } : {}) } };
  }
  for (const [flag, kind] of [
    ["sse", "sse"],
    ["streamableHttp", "mcp"],
  ] as const) {
    const [url] = flags.get(flag) ?? [];
    if (url === undefined) continue;
    const headers = headersOf(flags);
    conversion.differs.push(
      "the remote server is offered over HTTP; for clients that start a program, see docs/clients.md",
    );
    const name = URL.canParse(url) ? new URL(url).hostname.replaceAll(".", "-") : "remote";
    return { name, [kind]: { url, ...(headers ? { headers } : {}) } };
  }
  return undefined;
}

function headersOf(flags: Flags): Record<string, string> | undefined {
  const headers = Object.fromEntries(
    (flags.get("header") ?? []).map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const [bearer] = flags.get("oauth2Bearer") ?? [];
  if (bearer !== undefined) headers.authorization = `Bearer ${bearer}`;
  return Object.keys(headers).length > 0 ? headers : undefined;
}

function policiesOf(flags: Flags): Values | undefined {
  const origins = flags.get("cors");
  if (!origins) return undefined;
  const named = origins.filter((origin) => origin !== "" && !origin.startsWith("/"));
  return {
    cors: { allowOrigins: named.length > 0 ? named : ["*"], allowHeaders: ["*"], exposeHeaders: ["Mcp-Session-Id"] },
  };
}

function noteFlag(flag: string, value: string, name: string, conversion: Conversion): void {
  const { leftOut, differs } = conversion;
  if (flag === "stateful" || flag === "sessionTimeout")
    differs.push(`${name}: every client has a session and a process of its own`);
  else if (flag === "healthEndpoint") leftOut.push(`--healthEndpoint ${value}: /healthz/ready is on the admin address`);
  else if (flag === "ssePath" || flag === "messagePath")
    leftOut.push(`--${flag} ${value}: the old transport is at /sse`);
  else if (flag === "baseUrl") leftOut.push(`--baseUrl ${value}: addresses are relative here`);
  else if (flag === "protocolVersion") leftOut.push(`--protocolVersion: is agreed with each client and server`);
  else if (flag === "cors" && value.startsWith("/"))
    leftOut.push(`--cors ${value}: origins are names here, with * for a part`);
  else if (!KNOWN.has(flag) && !ALWAYS.has(flag)) leftOut.push(`--${flag}: there is no counterpart`);
}

const KNOWN = new Set([
  "stdio",
  "sse",
  "streamableHttp",
  "port",
  "cors",
  "header",
  "oauth2Bearer",
  "streamableHttpPath",
  "logLevel",
]);

function ownWords(line: string): string[] {
  const all = words(line);
  return all.slice(all.findIndex((word) => /^[^-].*supergateway|^supergateway/.test(word)) + 1);
}

/** Parses `--name value…` and `--name=value`. */
function flagsOf(list: readonly string[]): Flags {
  const flags = new Map<string, string[]>();
  let current: string[] | undefined;
  for (const word of list) {
    const [, name, value] = /^--([A-Za-z0-9]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === undefined) current?.push(word);
    else {
      current = flags.get(name) ?? [];
      flags.set(name, current);
      if (value !== undefined) current.push(value);
    }
  }
  return flags;
}
