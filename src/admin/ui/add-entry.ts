/**
 * `/ui/api/add` returns the text of a configuration file with a server, model, route, backend, or policy added, and
 * writes nothing. Lines are inserted as text, so comments, order, and layout stay unchanged.
 */
import { createRequire } from "node:module";
import { isMap, isSeq, type YAMLMap, type YAMLSeq } from "yaml";
import { z } from "zod";
import { onDemand } from "../../base/on-demand.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readYamlDocuments } from "../../base/read-yaml.ts";
import { asObject } from "../../config/import/conversion.ts";
import type { SourceText } from "../../config/load/load.ts";
import { markPlaceholders } from "../../config/text/env.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { providerName } from "../../llm/models/schema.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import { type AdminEndpoint, jsonResponse, textResponse } from "../server/endpoint.ts";
import { shownText } from "./shown-text.ts";
import { appendTo, type Inserted, insertAt, type NewContent } from "./yaml-insert.ts";

const BODY = peerInput("admin-client/body");
const EDITED = peerInput("admin-client/configuration");

const require = createRequire(import.meta.url);
const foreignFormat = onDemand<typeof import("../../config/import/direct-load.ts")>(() =>
  require("../../config/import/direct-load.js"),
);

const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, "use letters, digits, `.`, `_` and `-`")
  .max(64);
/** The text becomes a quoted value on one line, so control characters are rejected. */
const line = z
  .string()
  .regex(/^[^\p{Cc}\u2028\u2029]*$/u, "use one line without control characters")
  .max(2_000);
const filled = line.min(1);
/** Forms contain the name of an environment variable, never the key itself. */
const variable = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "use the name of an environment variable")
  .max(128);
const count = z.int().min(1).max(1_000_000_000);
/** The route or listener that a policy is added to, as in the places of `/ui/api/config-text`. */
const target = z.string().regex(/^(?:route|listener) ./);

const entrySchema = z.union([
  z.strictObject({ kind: z.literal("server"), name, url: z.url({ protocol: /^https?$/ }).max(2_000) }),
  z.strictObject({ kind: z.literal("server"), name, cmd: filled, args: z.array(line).max(100).default([]) }),
  z.strictObject({
    kind: z.literal("model"),
    name,
    provider: z.union([providerName, z.literal("openAICompatible")]),
    model: filled.optional(),
    keyVariable: variable.optional(),
    baseUrl: filled.optional(),
    awsRegion: filled.optional(),
    vertexProject: filled.optional(),
    azureResourceName: filled.optional(),
  }),
  z.strictObject({
    kind: z.literal("route"),
    name,
    gateway: filled.optional(),
    hostname: filled.optional(),
    match: z.enum(["pathPrefix", "exact"]),
    path: filled.regex(/^\//, "a path begins with /"),
    host: filled,
  }),
  z.strictObject({ kind: z.literal("backend"), target, host: filled, weight: count.optional() }),
  z.strictObject({
    kind: z.literal("rateLimit"),
    target,
    of: z.enum(["requests", "tokens"]),
    amount: count,
    unit: z.enum(["Seconds", "Minutes", "Hours"]),
    burst: count.optional(),
    key: filled.optional(),
  }),
  z.strictObject({ kind: z.literal("apiKey"), target, keyVariable: variable.optional(), user: filled.optional() }),
  z.strictObject({
    kind: z.literal("authorization"),
    target,
    effect: z.enum(["require", "allow", "deny"]),
    rule: filled,
  }),
]);

/** With `text`, the entry is added to an edit of the file that is not saved yet. */
const questionSchema = z.strictObject({ file: z.string(), text: z.string().optional(), entry: z.unknown() });

export type Entry = z.output<typeof entrySchema>;
type EntryOf<Kind extends Entry["kind"]> = Extract<Entry, { kind: Kind }>;

export function addEndpoint(options: { read(): readonly SourceText[]; redaction: Redaction }): AdminEndpoint {
  return {
    path: "/ui/api/add",
    doc: "POST: the text of a file with a server, model, route, backend, or policy added; writes nothing.",
    async POST(request) {
      const parsed = questionSchema.safeParse(tryReadJson(BODY, await request.body()));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const entry = entrySchema.safeParse(parsed.data.entry);
      if (!entry.success) return textResponse(400, `${describeProblem(entry.error, parsed.data.entry)}\n`);
      const source = options.read().find(({ file }) => file === parsed.data.file);
      if (!source) return textResponse(404, "that file is not part of the configuration\n");
      const text = parsed.data.text ?? shownText(source.text, options.redaction).text;
      const added = withEntry(text, entry.data);
      return "problem" in added ? textResponse(409, `${added.problem}\n`) : jsonResponse(added);
    },
  };
}

export function withEntry(text: string, entry: Entry): Inserted {
  const documents = readYamlDocuments(EDITED, markPlaceholders(text).text);
  if (documents.length > 1) return { problem: "the file has several documents; edit it as text" };
  const [document] = documents;
  if (document !== undefined && document.errors.length > 0) return { problem: "the file has errors; fix them first" };
  const contents = document?.contents ?? undefined;
  if (contents !== undefined && !isMap(contents)) return { problem: "the file is not an object" };
  const root = contents;
  if (root?.has("apiVersion")) return { problem: "the file contains a resource; edit it as text" };
  if (root !== undefined && foreignFormat().hasForeignLayout(asObject(document?.toJS())))
    return { problem: "the file is a configuration of agentgateway; convert it with `gwctl import` first" };
  switch (entry.kind) {
    case "server":
    case "model":
      return withNamed(text, root, entry);
    case "route":
      return withRoute(text, root, entry);
    case "backend": {
      const route = routeIn(root, entry.target);
      return route === undefined
        ? { problem: `there is no ${entry.target} under \`routes\` in this file` }
        : insertAt(text, route, ["backends"], { item: flow({ host: entry.host, weight: entry.weight }) });
    }
    default: {
      const owner = ownerIn(root, entry.target);
      if (owner === undefined) return { problem: `there is no ${entry.target} in this file` };
      const { path, content } = policyContent(entry);
      return insertAt(text, owner, ["policies", ...path], content);
    }
  }
}

function policyContent(entry: EntryOf<"rateLimit" | "apiKey" | "authorization">): {
  readonly path: readonly string[];
  readonly content: NewContent;
} {
  if (entry.kind === "rateLimit") {
    const { of, amount, unit, burst, key } = entry;
    return { path: ["rateLimit", "local"], content: { item: flow({ [of]: amount, burst, unit, key }) } };
  }
  if (entry.kind === "authorization") {
    const { effect, rule } = entry;
    const item = effect === "require" ? quoted(rule) : flow({ [effect]: rule });
    return { path: ["authorization", "rules"], content: { item } };
  }
  if (entry.keyVariable === undefined) return { path: ["apiKey", "stored"], content: { value: "true" } };
  const metadata = entry.user === undefined ? "" : `, metadata: ${flow({ user_id: entry.user })}`;
  return { path: ["apiKey", "keys"], content: { item: `{ key: "\${${entry.keyVariable}}"${metadata} }` } };
}

/** Servers are added to `mcp.targets` or to the first MCP backend of a route, and models to `llm.models`. */
function withNamed(text: string, root: YAMLMap | undefined, entry: EntryOf<"server" | "model">): Inserted {
  const isModel = entry.kind === "model";
  const [section, list, port] = isModel ? ["llm", "models", 4000] : ["mcp", "targets", 3000];
  const content = { fields: isModel ? modelFields(entry) : serverFields(entry) };
  const owner = root === undefined ? undefined : isModel ? root : serverOwner(root);
  if (owner?.has(section) !== true)
    return appendTo(text, [`${section}:`, `  port: ${port}`], { name: list, indent: "  ", content });
  const found = owner.getIn([section, list], true);
  if (isSeq(found) && namesIn(found).includes(entry.name))
    return { problem: `there is already one named ${entry.name}` };
  return insertAt(text, owner, [section, list], content);
}

/** Returns the map with the field `mcp`: the file itself or the first MCP backend of a route. */
function serverOwner(root: YAMLMap): YAMLMap {
  if (root.has("mcp")) return root;
  const backends = routesOf(root).flatMap((route) => listIn(route, "backends")?.items ?? []);
  return backends.filter((backend) => isMap(backend)).find((backend) => backend.has("mcp")) ?? root;
}

function withRoute(text: string, root: YAMLMap | undefined, entry: EntryOf<"route">): Inserted {
  if (root !== undefined && routesOf(root).some((route) => route.get("name") === entry.name))
    return { problem: `there is already one named ${entry.name}` };
  const content = {
    fields: [
      `name: ${quoted(entry.name)}`,
      ...(entry.gateway === undefined ? [] : [`gateways: ${quoted(entry.gateway)}`]),
      ...(entry.hostname === undefined ? [] : [`hostnames: [${quoted(entry.hostname)}]`]),
      `matches: [{ path: { ${entry.match}: ${quoted(entry.path)} } }]`,
      `backends: [{ host: ${quoted(entry.host)} }]`,
    ],
  };
  const needsGateway = root === undefined || (!root.has("gateways") && !root.has("routes"));
  if (needsGateway)
    return appendTo(text, ["gateways:", "  default: { port: 8080 }"], { name: "routes", indent: "", content });
  return insertAt(text, root, ["routes"], content);
}

function routeIn(root: YAMLMap | undefined, wanted: string): YAMLMap | undefined {
  if (root === undefined) return undefined;
  return routesOf(root).find((route, i) => `route ${String(route.get("name") ?? `route${i}`)}` === wanted);
}

/** Returns the route, listener, or section, such as `llm`, that has the policies. */
function ownerIn(root: YAMLMap | undefined, wanted: string): YAMLMap | undefined {
  const route = routeIn(root, wanted);
  if (route) return route;
  const wantedName = wanted.slice(wanted.indexOf(" ") + 1);
  const found = wanted.startsWith("listener ")
    ? root?.getIn(["gateways", wantedName], true)
    : ["mcp", "llm"].includes(wantedName)
      ? root?.get(wantedName, true)
      : undefined;
  return isMap(found) ? found : undefined;
}

function routesOf(root: YAMLMap): YAMLMap[] {
  return (listIn(root, "routes")?.items ?? []).filter((route) => isMap(route));
}

function listIn(map: YAMLMap, key: string): YAMLSeq | undefined {
  const found = map.get(key, true);
  return isSeq(found) ? found : undefined;
}

function namesIn(list: YAMLSeq): unknown[] {
  return list.items.flatMap((item) => (isMap(item) ? [item.get("name")] : []));
}

function modelFields(entry: EntryOf<"model">): string[] {
  const { keyVariable, provider, model, baseUrl, awsRegion, vertexProject, azureResourceName } = entry;
  const isCompatible = provider === "openAICompatible";
  const settings = {
    model,
    baseUrl: isCompatible ? undefined : baseUrl,
    awsRegion,
    vertexProject,
    azureResourceName,
  };
  const params = [...fieldsOf(settings), ...(keyVariable === undefined ? [] : [`apiKey: "\${${keyVariable}}"`])];
  return [
    `name: ${quoted(entry.name)}`,
    `provider: ${isCompatible ? `{ openAICompatible: ${flow({ baseUrl })} }` : provider}`,
    ...(params.length === 0 ? [] : [`params: { ${params.join(", ")} }`]),
  ];
}

function serverFields(entry: EntryOf<"server">): string[] {
  if ("url" in entry) return [`name: ${quoted(entry.name)}`, `mcp: { url: ${quoted(entry.url)} }`];
  const args = entry.args.length === 0 ? "" : `, args: [${entry.args.map(quoted).join(", ")}]`;
  return [`name: ${quoted(entry.name)}`, `stdio: { cmd: ${quoted(entry.cmd)}${args} }`];
}

type Values = Readonly<Record<string, string | number | undefined>>;

function fieldsOf(values: Values): string[] {
  return Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key}: ${typeof value === "number" ? value : quoted(value)}`],
  );
}

function flow(values: Values): string {
  return `{ ${fieldsOf(values).join(", ")} }`;
}

/** Doubles a `$` that starts a placeholder, because the input is a literal value and not a variable. */
function quoted(text: string): string {
  const isPlain = /^[A-Za-z/][A-Za-z0-9_./-]*$/.test(text) && !/^(?:true|false|null|yes|no|on|off|y|n)$/i.test(text);
  if (isPlain) return text;
  // Expressions contain double quotes, which need no escapes inside single quotes.
  const isReadable = text.includes('"') && !text.includes("'");
  return (isReadable ? `'${text}'` : JSON.stringify(text)).replaceAll("${", () => "$${");
}

/** For a union, returns the error of the alternative with the same kind. */
function describeProblem({ issues: [issue] }: z.ZodError, entry: unknown): string {
  const inner =
    issue?.code === "invalid_union"
      ? issue.errors
          .filter((one) => one.every(({ path }) => path[0] !== "kind"))
          .sort((a, b) => a.length - b.length)
          .flat()
          .find(({ code }) => code !== "unrecognized_keys")
      : issue;
  if (inner === undefined || typeof entry !== "object") return "not a valid entry";
  return `${inner.path.join(".")}: ${inner.message}`;
}
