/**
 * `/ui/api/add` returns the text of a configuration file with an MCP server or a model added, and writes nothing.
 * Lines are inserted as text, so comments, order, and layout stay unchanged.
 */
import { isMap, isScalar, isSeq, type Node, parseAllDocuments, type YAMLMap, type YAMLSeq } from "yaml";
import { z } from "zod";
import type { SourceText } from "../../config/load/load.ts";
import { markPlaceholders } from "../../config/text/env.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { type AdminEndpoint, jsonResponse, textResponse } from "../server/endpoint.ts";
import { shownText } from "./shown-text.ts";

const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, "use letters, digits, `.`, `_` and `-`")
  .max(64);
/** The text becomes a quoted value on one line, so control characters are rejected. */
const line = z
  .string()
  .regex(/^[^\p{Cc}\u2028\u2029]*$/u, "use one line without control characters")
  .max(2_000);

const entrySchema = z.union([
  z.strictObject({ kind: z.literal("server"), name, url: z.url({ protocol: /^https?$/ }).max(2_000) }),
  z.strictObject({ kind: z.literal("server"), name, cmd: line.min(1), args: z.array(line).max(100).default([]) }),
  z.strictObject({
    kind: z.literal("model"),
    name,
    provider: z.enum(["openAI", "anthropic", "gemini", "demo"]),
    model: line.min(1).optional(),
    /** The form contains the name of an environment variable, never the key itself. */
    keyVariable: z
      .string()
      .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "use the name of an environment variable")
      .max(128)
      .optional(),
  }),
]);

const questionSchema = z.strictObject({ file: z.string(), entry: z.unknown() });

export type Entry = z.output<typeof entrySchema>;

export function addEndpoint(options: { read(): readonly SourceText[]; redaction: Redaction }): AdminEndpoint {
  return {
    path: "/ui/api/add",
    doc: "POST: the text of a file with an MCP server or model added; writes nothing.",
    async POST(request) {
      const parsed = questionSchema.safeParse(parseJson((await request.body()).toString("utf8")));
      if (!parsed.success) return textResponse(400, `${z.prettifyError(parsed.error)}\n`);
      const entry = entrySchema.safeParse(parsed.data.entry);
      if (!entry.success) return textResponse(400, `${describeProblem(entry.error)}\n`);
      const source = options.read().find(({ file }) => file === parsed.data.file);
      if (!source) return textResponse(404, "that file is not part of the configuration\n");
      const added = withEntry(shownText(source.text, options.redaction).text, entry.data);
      return "problem" in added ? textResponse(409, `${added.problem}\n`) : jsonResponse(added);
    },
  };
}

export function withEntry(text: string, entry: Entry): { text: string; line: number } | { problem: string } {
  const documents = [parseAllDocuments(markPlaceholders(text).text, { prettyErrors: false })].flat();
  if (documents.length > 1) return { problem: "the file has several documents; edit it as text" };
  const [document] = documents;
  if (document !== undefined && document.errors.length > 0) return { problem: "the file has errors; fix them first" };
  const root = document?.contents;
  if (root !== undefined && root !== null && !isMap(root)) return { problem: "the file is not an object" };
  const list = isMap(root) ? listFor(root, entry) : undefined;
  if (list !== undefined && namesIn(list).includes(entry.name))
    return { problem: `there is already one named ${entry.name}` };
  const fields = yamlFields(entry);
  if (list === undefined) return appended(text, topLevel(entry, isMap(root) ? root : undefined, fields));
  return list.flow === true ? insideFlow(text, list, fields) : afterLast(text, list, fields);
}

/** Servers are added to `mcp.targets` or to the first MCP backend of a route, and models to `llm.models`. */
function listFor(root: YAMLMap, entry: Entry): YAMLSeq | undefined {
  if (entry.kind === "model") return seqAt(root, ["llm", "models"]);
  const own = seqAt(root, ["mcp", "targets"]);
  if (own) return own;
  const routes = seqAt(root, ["routes"]);
  for (const route of routes?.items ?? [])
    for (const backend of (isMap(route) ? seqAt(route, ["backends"]) : undefined)?.items ?? []) {
      const targets = isMap(backend) ? seqAt(backend, ["mcp", "targets"]) : undefined;
      if (targets) return targets;
    }
  return undefined;
}

function seqAt(map: YAMLMap, path: readonly string[]): YAMLSeq | undefined {
  const found = map.getIn(path, true);
  return isSeq(found) && found.items.length > 0 ? found : undefined;
}

function namesIn(list: YAMLSeq): unknown[] {
  return list.items.flatMap((item) => (isMap(item) ? [item.get("name")] : []));
}

function yamlFields(entry: Entry): string[] {
  if (entry.kind === "model") {
    const params = [
      ...(entry.model === undefined ? [] : [`model: ${quoted(entry.model)}`]),
      ...(entry.keyVariable === undefined ? [] : [`apiKey: "\${${entry.keyVariable}}"`]),
    ];
    return [
      `name: ${quoted(entry.name)}`,
      `provider: ${entry.provider}`,
      ...(params.length === 0 ? [] : [`params: { ${params.join(", ")} }`]),
    ];
  }
  if ("url" in entry) return [`name: ${quoted(entry.name)}`, `mcp: { url: ${quoted(entry.url)} }`];
  const args = entry.args.length === 0 ? "" : `, args: [${entry.args.map(quoted).join(", ")}]`;
  return [`name: ${quoted(entry.name)}`, `stdio: { cmd: ${quoted(entry.cmd)}${args} }`];
}

/** Doubles a `$` that starts a placeholder, because the input is a literal value and not a variable. */
function quoted(text: string): string {
  const isPlain = /^[A-Za-z][A-Za-z0-9_-]*$/.test(text) && !/^(?:true|false|null|yes|no|on|off|y|n)$/i.test(text);
  return isPlain ? text : JSON.stringify(text).replaceAll("${", () => "$${");
}

function topLevel(entry: Entry, root: YAMLMap | undefined, fields: readonly string[]): string[] {
  const [key, list, port] = entry.kind === "model" ? ["llm", "models", 4000] : ["mcp", "targets", 3000];
  if (root?.has(key)) return [];
  return [`${key}:`, `  port: ${port}`, `  ${list}:`, ...itemLines(fields, "    ")];
}

function itemLines(fields: readonly string[], indent: string): string[] {
  return fields.map((field, i) => `${indent}${i === 0 ? "- " : "  "}${field}`);
}

function appended(text: string, lines: readonly string[]): { text: string; line: number } | { problem: string } {
  if (lines.length === 0) return { problem: "the list is empty or not written as a list; edit it as text" };
  const before = text === "" || text.endsWith("\n") ? text : `${text}\n`;
  return { text: `${before}${lines.join("\n")}\n`, line: before.split("\n").length };
}

function insideFlow(text: string, list: YAMLSeq, fields: readonly string[]): { text: string; line: number } {
  const last = nodeRange(list.items.at(-1));
  const at = last[1];
  return { text: `${text.slice(0, at)}, { ${fields.join(", ")} }${text.slice(at)}`, line: lineAt(text, at) };
}

function afterLast(text: string, list: YAMLSeq, fields: readonly string[]): { text: string; line: number } {
  const [start] = nodeRange(list.items.at(-1));
  const dash = text.lastIndexOf("-", start);
  const indent = text.slice(text.lastIndexOf("\n", dash) + 1, dash);
  const end = endOfValue(text, list.items.at(-1));
  const next = text.indexOf("\n", end);
  const at = next < 0 ? text.length : next;
  return {
    text: `${text.slice(0, at)}\n${itemLines(fields, indent).join("\n")}${text.slice(at)}`,
    line: lineAt(text, at) + 1,
  };
}

/** Excludes trailing white space and comments, which belong to the next item. */
function endOfValue(text: string, item: unknown): number {
  if ((isMap(item) || isSeq(item)) && item.flow !== true && item.items.length > 0) {
    const last = item.items.at(-1);
    const inner = isMap(item) ? (last as { value: unknown; key: unknown }).value : last;
    if (inner !== null && inner !== undefined) return endOfValue(text, inner);
    if (isMap(item)) return endOfValue(text, (last as { key: unknown }).key);
  }
  const end = nodeRange(item)[1];
  // A block scalar ends at the start of the next line.
  return isScalar(item) && text[end - 1] === "\n" ? end - 1 : end;
}

function nodeRange(node: unknown): readonly [number, number, number] {
  return (node as Node | undefined)?.range ?? [0, 0, 0];
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

function describeProblem({ issues }: z.ZodError): string {
  const [issue] = issues;
  const inner =
    issue?.code === "invalid_union" ? issue.errors.flat().find(({ code }) => code !== "unrecognized_keys") : issue;
  return inner === undefined ? "not a valid entry" : `${inner.path.join(".")}: ${inner.message}`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
