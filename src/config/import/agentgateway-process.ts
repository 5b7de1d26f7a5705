/**
 * Converts the settings of agentgateway's process: `config` and `frontendPolicies`.
 */
import { defined } from "../../json/json.ts";
import { asList, asObject, type Conversion, isObject, leaveOutOthers, type Values } from "./conversion.ts";

const NO_COUNTERPART = "there is no counterpart";
const TRACING = ["otlpEndpoint", "otlpProtocol", "headers", "randomSampling", "clientSampling", "path", "fields"];
const FRONTEND_TRACING = [
  "host",
  "protocol",
  "randomSampling",
  "clientSampling",
  "path",
  "attributes",
  "remove",
  "resources",
];

/** Returns the section `config`, or undefined if the source has no `config` and there are no fields to set. */
export function processOf(config: unknown, frontendPolicies: unknown, conversion: Conversion): Values | undefined {
  const { tracing, database, readinessAddr, mcp, connectionTerminationDeadline, ...others } = asObject(config);
  const frontend = asObject(frontendPolicies);
  const result: Values = { ...others };
  if (connectionTerminationDeadline !== undefined) result.drainTimeout = connectionTerminationDeadline;
  if (readinessAddr !== undefined) addReadiness(result, readinessAddr, conversion);
  if (isObject(database)) addHistory(result, database, conversion);
  leaveOutOthers(conversion, "config.mcp.", asObject(mcp), ["sessionTtl"], NO_COUNTERPART);
  if (isObject(frontend.accessLog)) addAccessLog(result, frontend.accessLog, conversion);
  const otlp = isObject(frontend.tracing)
    ? frontendOtlp(frontend.tracing, conversion)
    : isObject(tracing)
      ? processOtlp(tracing, conversion)
      : undefined;
  const exported = withLogs(otlp, asObject(frontend.accessLog).otlp, conversion);
  if (exported !== undefined) result.telemetry = { otlp: exported };
  addHttp(asObject(frontend.http), conversion);
  leaveOutOthers(
    conversion,
    "frontendPolicies.",
    frontend,
    ["accessLog", "tracing", "http", "networkAuthorization"],
    NO_COUNTERPART,
  );
  return config === undefined && Object.keys(result).length === 0 ? undefined : result;
}

/** The statistics address also serves `/healthz/ready`. */
function addReadiness(result: Values, readinessAddr: unknown, conversion: Conversion): void {
  if (result.statsAddr === undefined) result.statsAddr = readinessAddr;
  else if (result.statsAddr !== readinessAddr)
    conversion.differs.push(
      `config.readinessAddr: /healthz/ready is at statsAddr (${String(result.statsAddr)}) here, not at ${String(readinessAddr)}`,
    );
}

function addHistory(result: Values, database: Values, conversion: Conversion): void {
  const url = String(database.url ?? "");
  leaveOutOthers(conversion, "config.database.", database, ["url"], NO_COUNTERPART);
  if (/^postgres(?:ql)?:/.test(url)) {
    result.history = { postgres: url };
    return;
  }
  result.history = {};
  conversion.differs.push("config.database: the database is an SQLite file in the folder `history` here");
}

function addAccessLog(result: Values, accessLog: Values, conversion: Conversion): void {
  const { add, filter } = accessLog;
  leaveOutOthers(conversion, "frontendPolicies.accessLog.", accessLog, ["add", "filter", "otlp"], NO_COUNTERPART);
  const access = defined({ fields: add, filter });
  if (Object.keys(access).length > 0) result.logging = { ...asObject(result.logging), access };
}

function processOtlp(tracing: Values, conversion: Conversion): Values {
  const at = "config.tracing.";
  const { otlpEndpoint, otlpProtocol, headers, fields } = tracing;
  leaveOutOthers(conversion, at, tracing, TRACING, NO_COUNTERPART);
  leaveOutOthers(conversion, `${at}fields.`, asObject(fields), ["add", "remove"], NO_COUNTERPART);
  const protocol = otlpProtocol ?? "grpc";
  return defined({
    endpoint: withPath(String(otlpEndpoint ?? ""), protocol, tracing.path, `${at}path`, conversion),
    protocol,
    headers,
    signals: ["traces"],
    sampling: samplingOf(tracing, at, conversion),
    ...attributesOf(asObject(fields).add, asObject(fields).remove, `${at}fields.remove`, conversion),
  });
}

function frontendOtlp(tracing: Values, conversion: Conversion): Values | undefined {
  const at = "frontendPolicies.tracing.";
  const { host, protocol: given } = tracing;
  leaveOutOthers(conversion, at, tracing, FRONTEND_TRACING, NO_COUNTERPART);
  if (typeof host !== "string") {
    conversion.leftOut.push("frontendPolicies.tracing: write the collector as `host`");
    return undefined;
  }
  const protocol = given ?? defaultProtocol(host);
  return defined({
    endpoint: withPath(endpointOf(host), protocol, tracing.path, `${at}path`, conversion),
    protocol,
    signals: ["traces"],
    sampling: samplingOf(tracing, at, conversion),
    ...attributesOf(tracing.attributes, tracing.remove, `${at}remove`, conversion),
    resource: resourcesOf(asObject(tracing.resources), `${at}resources.`, conversion),
  });
}

/** Port 4317 is the standard port of OTLP over gRPC. */
function defaultProtocol(host: string): string {
  return /:4317$/.test(host) ? "grpc" : "http";
}

function endpointOf(host: string): string {
  return /^https?:\/\//.test(host) ? host : `${host.endsWith(":443") ? "https" : "http"}://${host}`;
}

/** The gateway adds `/v1/traces` to the endpoint itself. */
function withPath(endpoint: string, protocol: unknown, path: unknown, at: string, conversion: Conversion): string {
  if (typeof path !== "string" || protocol !== "http") return endpoint;
  const prefix = path.replace(/\/v1\/traces$/, "");
  if (prefix === path) conversion.leftOut.push(`${at}: here it must end with /v1/traces`);
  return prefix === path ? endpoint : `${endpoint.replace(/\/$/, "")}${prefix}`;
}

function samplingOf(tracing: Values, at: string, conversion: Conversion): Values {
  const ratio = ratioOf(tracing.randomSampling ?? false);
  if (ratio === undefined) conversion.leftOut.push(`${at}randomSampling: here it is a number from 0 to 1`);
  const client = ratioOf(tracing.clientSampling ?? true);
  if (client !== 0 && client !== 1)
    conversion.leftOut.push(`${at}clientSampling: here the client's flag decides always or never`);
  return { ratio: ratio ?? 0, ...(client === 0 ? { followClient: false } : {}) };
}

function ratioOf(value: unknown): number | undefined {
  if (value === true || value === "true") return 1;
  if (value === false || value === "false") return 0;
  const number = Number(value);
  return number >= 0 && number <= 1 ? number : undefined;
}

/** Strings in an expression stay as they are. */
const FLATTEN = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?<![\w.])flatten(?:Recursive)?(?=\()/g;

/**
 * agentgateway has one span per request. Here, members of a map always become attributes of their own, so `flatten` is
 * not needed.
 */
function attributesOf(add: unknown, remove: unknown, at: string, conversion: Conversion): Values {
  const added = Object.entries(asObject(add)).map(([name, source]): [string, unknown] => [
    name,
    typeof source === "string"
      ? source.replaceAll(FLATTEN, (text) => (text.startsWith("flatten") ? "" : text))
      : source,
  ]);
  const removed = asList(remove).map(String);
  if (removed.length > 0)
    conversion.differs.push(`${at}: some attributes have other names here (docs/monitor.md#spans)`);
  if (added.length === 0 && removed.length === 0) return {};
  return defined({
    spans: "request",
    attributes: added.length === 0 ? undefined : Object.fromEntries(added),
    removeAttributes: removed.length === 0 ? undefined : removed,
  });
}

/** agentgateway's resource attributes are CEL expressions. Here they are strings, so only literals can be converted. */
function resourcesOf(resources: Values, at: string, conversion: Conversion): Values | undefined {
  const entries = Object.entries(resources).flatMap(([name, source]) => {
    const literal = /^\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*$/.exec(String(source));
    if (literal === null) conversion.leftOut.push(`${at}${name}: here it is a fixed string`);
    return literal === null ? [] : [[name, literal[1] ?? literal[2] ?? ""] as const];
  });
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** All signals have one collector, so log records can only go to the collector of the traces. */
function withLogs(otlp: Values | undefined, logs: unknown, conversion: Conversion): Values | undefined {
  if (!isObject(logs)) return otlp;
  const at = "frontendPolicies.accessLog.otlp";
  leaveOutOthers(conversion, `${at}.`, logs, ["host", "protocol"], NO_COUNTERPART);
  if (typeof logs.host !== "string") {
    conversion.leftOut.push(`${at}: write the collector as \`host\``);
    return otlp;
  }
  const endpoint = endpointOf(logs.host);
  if (otlp === undefined) return { endpoint, protocol: logs.protocol ?? defaultProtocol(logs.host), signals: ["logs"] };
  if (otlp.endpoint === endpoint) return { ...otlp, signals: [...asList(otlp.signals), "logs"] };
  conversion.leftOut.push(`${at}: traces and log records have one collector here`);
  return otlp;
}

function addHttp(http: Values, conversion: Conversion): void {
  leaveOutOthers(conversion, "frontendPolicies.http.", http, ["maxBufferSize"], NO_COUNTERPART);
  if (http.maxBufferSize !== undefined)
    conversion.differs.push(
      "frontendPolicies.http.maxBufferSize: bodies that the gateway reads have fixed limits here (docs/reference/limits.md)",
    );
}
