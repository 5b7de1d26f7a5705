/**
 * A configuration text as the UI may show it: as written, comments and order included, with each secret replaced by
 * a numbered mark, and the way back. What is secret is said by the schema and by header names, as in the dump;
 * `${VAR}` stays, because it names a secret without telling it.
 */
import { isMap, isPair, isScalar, isSeq, LineCounter, type Node, parseAllDocuments } from "yaml";
import { z } from "zod";
import { markPlaceholders } from "../config/env.ts";
import { schemaAt, unwrap } from "../config/problems.ts";
import { specSchema } from "../config/resources/parts.ts";
import { configSchema } from "../config/schema.ts";
import { isSecretSchema } from "../core/schema.ts";
import { policies } from "../policies/index.ts";
import type { Redaction } from "../trace/redact.ts";

export interface ShownText {
  readonly text: string;
  /** What the marks `<redacted:0>`, `<redacted:1>`, … stand for, as written. Never leaves the process. */
  readonly secrets: readonly string[];
  /** Where gateways, routes and resource documents stand: `route tools` and the like. */
  readonly places: Readonly<Record<string, { readonly line: number; readonly endLine: number }>>;
}

const MARK_CHARACTER = "\ue000";
const MARK = /<redacted:(\d{1,6})>/g;
/** A text that is no YAML has no schema: every value of a field that sounds like a secret is hidden. */
const SOUNDS_SECRET =
  /^(\s*-?\s*[\w.-]*(?:secret|password|passwd|token|key|authorization|cookie)[\w.-]*\s*:\s*)(\S.*)$/gim;

interface Span {
  readonly start: number;
  readonly end: number;
}

export function shownText(text: string, redaction: Redaction): ShownText {
  const lines = new LineCounter();
  const documents = parseAllDocuments(markPlaceholders(text).text, { lineCounter: lines, prettyErrors: false });
  if (!Array.isArray(documents) || documents.some(({ errors }) => errors.length > 0)) return withoutStructure(text);

  const spans: Span[] = [];
  const places: Record<string, { line: number; endLine: number }> = {};
  const lineOf = (offset: number): number => lines.linePos(offset).line;
  for (const document of documents) {
    const schemas = schemasOf(document.toJS() as unknown);
    walk(document.contents, schemas, false);
    Object.assign(places, placesOf(document.contents, lineOf));
  }
  return { ...replaceSpans(text, spans), places };

  function walk(node: unknown, schemas: readonly z.ZodType[], secret: boolean): void {
    if (isMap(node)) {
      for (const pair of node.items) {
        const key = isScalar(pair.key) ? String(pair.key.value) : "";
        const fields = schemas.flatMap((schema) => schemaAt(schema, [key]));
        const hidden = secret || isSecretField(schemas, key) || (isScalar(pair.value) && redaction.isSensitive(key));
        walk(pair.value, fields, hidden);
      }
    } else if (isSeq(node)) {
      for (const [i, item] of node.items.entries()) {
        const element = schemas.flatMap((schema) => schemaAt(schema, [i]));
        walk(isPair(item) ? item.value : item, element, secret || element.some(isSecretSchema));
      }
    } else if (isScalar(node) && secret && node.range && node.value !== null) {
      const written = text.slice(node.range[0], node.range[1]);
      // A reference to a variable tells nothing, unless it carries a default.
      if (String(node.value).startsWith(MARK_CHARACTER) && !written.includes(":-")) return;
      spans.push({ start: node.range[0], end: node.range[0] + written.trimEnd().length });
    }
  }
}

/** Puts the secrets back; `lineOf` translates a line of the result to the line that the editor shows. */
export function restoreSecrets(
  text: string,
  secrets: readonly string[],
): { text: string; unknown: number[]; lineOf(line: number): number } {
  const unknown: number[] = [];
  // Lines that the result has more than the shown text, after each shown line.
  const extra: { shownLine: number; lines: number }[] = [];
  const restored = text.replace(MARK, (mark: string, digits: string, offset: number) => {
    const secret = secrets[Number(digits)];
    if (secret === undefined) {
      unknown.push(Number(digits));
      return mark;
    }
    const lines = secret.split("\n").length - 1;
    if (lines > 0) extra.push({ shownLine: text.slice(0, offset).split("\n").length, lines });
    return secret;
  });
  return {
    text: restored,
    unknown,
    lineOf(line) {
      let shown = line;
      for (const one of extra) {
        if (shown <= one.shownLine) break;
        shown = Math.max(one.shownLine, shown - one.lines);
      }
      return shown;
    },
  };
}

function isSecretField(schemas: readonly z.ZodType[], key: string): boolean {
  return schemas.flatMap(unwrap).some((schema) => {
    if (schema instanceof z.ZodRecord) return isMarkedSecret(schema.valueType as z.ZodType);
    if (!(schema instanceof z.ZodObject)) return false;
    const field = (schema.shape as Record<string, z.ZodType | undefined>)[key];
    return field !== undefined && isMarkedSecret(field);
  });
}

/** The mark may sit on the schema or on what it wraps. */
function isMarkedSecret(schema: z.ZodType): boolean {
  return isSecretSchema(schema) || unwrap(schema).some(isSecretSchema);
}

function schemasOf(value: unknown): z.ZodType[] {
  const isResource = typeof value === "object" && value !== null && "kind" in value;
  return isResource ? [z.object({ spec: specSchema(policies) })] : [configSchema];
}

function placesOf(
  root: unknown,
  lineOf: (offset: number) => number,
): Record<string, { line: number; endLine: number }> {
  const places: Record<string, { line: number; endLine: number }> = {};
  const put = (name: string, node: unknown, startNode: unknown = node): void => {
    const start = (startNode as Node | null)?.range?.[0];
    const end = (node as Node | null)?.range?.[1];
    if (start !== undefined && end !== undefined) places[name] = { line: lineOf(start), endLine: lineOf(end - 1) };
  };
  if (!isMap(root)) return places;
  const kind = root.get("kind");
  if (kind !== undefined) {
    put(`${String(kind)} ${String(root.getIn(["metadata", "name"]) ?? "")}`, root);
    return places;
  }
  for (const pair of root.items) {
    const section = isScalar(pair.key) ? String(pair.key.value) : "";
    if (section === "gateways" && isMap(pair.value))
      for (const gateway of pair.value.items)
        put(`listener ${isScalar(gateway.key) ? String(gateway.key.value) : ""}`, gateway.value, gateway.key);
    else if (section === "routes" && isSeq(pair.value))
      for (const [i, route] of pair.value.items.entries())
        put(`route ${String((isMap(route) ? route.get("name") : undefined) ?? `route${i}`)}`, route);
    else if (section !== "config" && section !== "services") {
      put(`listener ${section}`, pair.value, pair.key);
      put(`route ${section}`, pair.value, pair.key);
    }
  }
  return places;
}

function withoutStructure(text: string): ShownText {
  const secrets: string[] = [];
  const shown = text.replace(SOUNDS_SECRET, (whole, head: string, value: string) => {
    if (value.startsWith("${") || value.startsWith("#")) return whole;
    secrets.push(value);
    return `${head}<redacted:${secrets.length - 1}>`;
  });
  return { text: shown, secrets, places: {} };
}

function replaceSpans(text: string, spans: readonly Span[]): { text: string; secrets: string[] } {
  const secrets: string[] = [];
  let shown = "";
  let from = 0;
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < from) continue;
    shown += `${text.slice(from, start)}<redacted:${secrets.length}>`;
    secrets.push(text.slice(start, end));
    from = end;
  }
  return { text: shown + text.slice(from), secrets };
}
