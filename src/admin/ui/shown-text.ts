/**
 * Converts the configuration to text for the UI's editor, as written but with each secret replaced by a numbered
 * marker, and converts it back. In a text that does not parse, everything after a name that looks like a secret is
 * hidden, to the end of its line or block.
 */
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  type Scalar,
  visit,
  type YAMLMap,
} from "yaml";
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { readYamlDocuments } from "../../base/read-yaml.ts";
import { specSchema } from "../../config/documents/policy-spec.ts";
import { configSchema } from "../../config/schema/schema.ts";
import { schemaAt, unwrap } from "../../config/schema/schema-walk.ts";
import { headerOf, isExpression, isNamedField } from "../../config/schema/shown-config.ts";
import { markPlaceholders } from "../../config/text/env.ts";
import { isSecretSchema } from "../../core/schema.ts";
import { policies } from "../../policies/index.ts";
import { createRedaction, REDACTED, type Redaction, redactArguments, redactText } from "../../record/trace/redact.ts";

const EDITED = peerInput("admin-client/configuration");

export interface ShownText {
  readonly text: string;
  /**
   * Contains the values of the markers `<redacted:0>`, `<redacted:1>`, … as written. They must never leave the
   * process.
   */
  readonly secrets: readonly string[];
  /** The names are for example `route tools`, `route tools policy cors`, and `route chat of model fast policy ai`. */
  readonly places: Places;
}

type Places = Readonly<Record<string, { readonly line: number; readonly endLine: number }>>;

const MIN_KEPT_CHARS = 3;
/** Shorter values are not searched for elsewhere, because they may be ordinary words. */
const MIN_REPEATED_CHARS = 12;
const MARK = /<redacted:(\d{1,6})>/g;
const ONLY_REFERENCES = /^["']?(?:\$\{\w+\})+["']?$/;
/** YAML parses `{ key:abc }` and `{ key=abc }` as names without a value. */
const NAME_WITH_VALUE = /^[\w.-]+[:=](?=\S)/;
export function shownText(text: string, redaction: Redaction): ShownText {
  const { hidden, places, lineOf } = findHidden(text, redaction);
  return { ...replaceSpans(text, hidden), places: shownPlaces(places, hidden, text, lineOf) };
}

interface Found {
  readonly hidden: readonly Span[];
  readonly places: Places;
  lineOf(offset: number): number;
}

function findHidden(text: string, redaction: Redaction): Found {
  const lines = new LineCounter();
  const marked = markPlaceholders(text).text;
  const documents = readYamlDocuments(EDITED, marked, { lines });
  const parses = documents.every(({ errors, warnings }) => errors.length + warnings.length === 0);

  const spans: Span[] = parses ? [] : secretLines(text);
  const places: Record<string, { line: number; endLine: number }> = {};
  const lineOf = (offset: number): number => lines.linePos(offset).line;
  for (const document of documents) {
    walk(document, document.contents, rootSchemas(document.contents), false);
    if (parses) Object.assign(places, findPlaces(document.contents, lineOf));
  }
  return { hidden: merged([...spans, ...repeatedIn(text, spans)]), places, lineOf };

  function walk(document: Document, node: unknown, schemas: readonly z.ZodType[], secret: boolean, map = ""): void {
    if (isMap(node)) {
      const name = headerNameIn(node);
      for (const pair of node.items) {
        const key = isScalar(pair.key) ? String(pair.key.value) : "";
        const fields = schemas.flatMap((schema) => schemaAt(schema, [key]));
        const header = isMap(pair.value) ? undefined : headerOf(key, name, map);
        const hidden =
          secret ||
          isSecretField(schemas, key) ||
          (parses && isUnknownField(schemas, key)) ||
          (!isMap(pair.value) && !isNamedField(schemas.flatMap(unwrap), key) && redaction.isSensitive(key)) ||
          (header !== undefined && redaction.isSensitive(header));
        hideNameWithValue(pair);
        if (!hidden && isScalar(pair.value)) hideIn(pair.value, (value) => shownSetting(value, fields, header));
        else walk(document, pair.value, fields, hidden, key);
      }
    } else if (isSeq(node)) {
      for (const [i, item] of node.items.entries()) {
        const element = schemas.flatMap((schema) => schemaAt(schema, [i]));
        const isHidden = secret || element.some(isSecretSchema);
        if (!isHidden && isScalar(item)) hideIn(item, (value) => shownElement(node.items, i, value, element));
        else walk(document, isPair(item) ? item.value : item, element, isHidden);
      }
    } else if (isAlias(node)) {
      const meant = secret ? node.resolve(document as Document.Parsed) : undefined;
      if (isScalar(meant)) hide(meant);
      else if (secret) hide(node);
    } else if (isScalar(node) && node.value !== null) {
      if (secret) hide(node);
      else hideIn(node, (value) => shownSetting(value, schemas));
    }
  }

  function hide(node: Scalar | Alias): void {
    if (!node.range) return;
    const written = text.slice(node.range[0], node.range[1]).trimEnd();
    // A variable reference reveals nothing, unless it has a default.
    if (!ONLY_REFERENCES.test(written)) spans.push({ start: node.range[0], end: node.range[0] + written.length });
  }

  function shownSetting(value: string, fields: readonly z.ZodType[], header?: string): string {
    if (fields.some(isExpression)) return redaction.expression(value, { header });
    return header === undefined ? redactText(value) : redaction.headerSetting(header, value);
  }

  function shownElement(items: readonly unknown[], i: number, value: string, elements: readonly z.ZodType[]): string {
    if (elements.some(isExpression)) return redaction.expression(value);
    const before = items[i - 1];
    const flag = isScalar(before) && typeof before.value === "string" ? [before.value] : [];
    return redactArguments([...flag, value]).at(-1) ?? value;
  }

  /** Hides the parts of a value that the redactor removes, or the whole value if the parts cannot be located. */
  function hideIn(node: Scalar, shown: (value: string) => string): void {
    if (typeof node.value !== "string" || node.value === "" || !node.range) return;
    const offset = marked.slice(node.range[0], node.range[1]).indexOf(node.value);
    const start = node.range[0] + offset;
    const value = offset < 0 ? node.value : text.slice(start, start + node.value.length);
    const result = shown(value);
    if (result === value) return;
    const parts = offset < 0 ? undefined : hiddenParts(value, result);
    if (parts === undefined) hide(node);
    else spans.push(...parts.map((part) => ({ start: start + part.start, end: start + part.end })));
  }

  function hideNameWithValue({ key, value }: Pair): void {
    const hasValue = value !== null && !(isScalar(value) && value.value === null);
    if (hasValue || !isScalar(key) || !key.range) return;
    const written = text.slice(key.range[0], key.range[1]);
    const [name] = NAME_WITH_VALUE.exec(written) ?? [];
    if (name !== undefined) spans.push({ start: key.range[0] + name.length, end: key.range[1] });
  }
}

export interface RestoredText {
  readonly text: string;
  readonly unknown: readonly number[];
  /** Where the text contains which secret. */
  readonly restored: readonly (Span & { readonly id: number })[];
  /** Maps a line of the text to a line of the editor. */
  lineOf(line: number): number;
}

export function restoreSecrets(text: string, secrets: readonly string[]): RestoredText {
  const unknown: number[] = [];
  // A secret with several lines moves the lines after its marker.
  const extra: { shownLine: number; lines: number }[] = [];
  const places: (Span & { id: number })[] = [];
  let added = 0;
  const restored = text.replace(MARK, (mark: string, digits: string, offset: number) => {
    const secret = secrets[Number(digits)];
    if (secret === undefined) {
      unknown.push(Number(digits));
      return mark;
    }
    const lines = secret.split("\n").length - 1;
    if (lines > 0) extra.push({ shownLine: text.slice(0, offset).split("\n").length, lines });
    const start = offset + added;
    places.push({ id: Number(digits), start, end: start + secret.length });
    added += secret.length - mark.length;
    return secret;
  });
  return {
    text: restored,
    unknown,
    restored: places,
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

/**
 * Returns the markers of an edited text that stand in a name, a tag, or an anchor, or in a value that is not a secret.
 * Messages and reports quote these, so a secret must not be restored there. Undefined if the text does not parse.
 */
export function misplacedMarkers(
  written: string,
  { text, restored }: RestoredText,
  redaction: Redaction,
): number[] | undefined {
  const names = namesIn(written);
  if (names === undefined) return undefined;
  const { hidden } = findHidden(text, redaction);
  const isHidden = ({ start, end }: Span): boolean => hidden.some((one) => one.start <= start && end <= one.end);
  const exposed = restored.filter((place) => !isHidden(place)).map(({ id }) => id);
  return [...new Set([...names.flatMap((name) => [...name.matchAll(MARK)].map(([, id]) => Number(id))), ...exposed])];
}

function namesIn(text: string): string[] | undefined {
  const names: string[] = [];
  for (const document of readYamlDocuments(EDITED, markPlaceholders(text).text)) {
    if (document.errors.length > 0) return undefined;
    visit(document, {
      Pair: (_index, { key }) => void (isNode(key) && key.range && names.push(text.slice(key.range[0], key.range[1]))),
      Alias: (_index, { source }) => void names.push(source),
      Value: (_index, { anchor = "", tag = "" }) => void names.push(anchor, tag),
    });
  }
  return names;
}

function isSecretField(schemas: readonly z.ZodType[], key: string): boolean {
  return schemas.flatMap(unwrap).some((schema) => {
    if (schema instanceof z.ZodRecord) return isMarkedSecret(schema.valueType as z.ZodType);
    if (!(schema instanceof z.ZodObject)) return false;
    return Object.hasOwn(schema.shape, key) && isMarkedSecret(schema.shape[key] as z.ZodType);
  });
}

/** Unknown fields are hidden, because a misspelled field may contain a secret. */
function isUnknownField(schemas: readonly z.ZodType[], key: string): boolean {
  const objects = schemas.flatMap(unwrap);
  return objects.length > 0 && objects.every((schema) => isStrictObject(schema) && !Object.hasOwn(schema.shape, key));
}

function isStrictObject(schema: z.ZodType): schema is z.ZodObject {
  return schema instanceof z.ZodObject && schema.def.catchall instanceof z.ZodNever;
}

function headerNameIn(map: YAMLMap): string | undefined {
  const name = map.get("name");
  return typeof name === "string" ? name : undefined;
}

/** Returns the spans of `written` that are redacted in `shown`, or undefined if they are ambiguous. */
function hiddenParts(written: string, shown: string): Span[] | undefined {
  const kept = shown.split(REDACTED);
  const last = kept.at(-1) ?? "";
  const parts: Span[] = [];
  let at = kept[0]?.length ?? 0;
  if (!written.startsWith(kept[0] ?? "") || !written.endsWith(last)) return undefined;
  for (const [i, text] of kept.entries()) {
    if (i === 0) continue;
    const next = i === kept.length - 1 ? written.length - text.length : written.indexOf(text, at);
    if (next < at || (i < kept.length - 1 && text.length < MIN_KEPT_CHARS)) return undefined;
    if (next > at) parts.push({ start: at, end: next });
    at = next + text.length;
  }
  return parts;
}

function isMarkedSecret(schema: z.ZodType): boolean {
  return isSecretSchema(schema) || unwrap(schema).some(isSecretSchema);
}

function rootSchemas(root: unknown): z.ZodType[] {
  const kind = isMap(root) ? root.get("kind") : undefined;
  if (kind === undefined) return [configSchema];
  return kind === "GatewayPolicy" ? [z.object({ spec: specSchema(policies) })] : [];
}

const INNER_SCOPES = { models: "model", virtualModels: "virtual model" } as const;

function findPlaces(root: unknown, lineOf: (offset: number) => number): Places {
  const places: Record<string, { line: number; endLine: number }> = {};
  const put = (name: string, node: unknown, startNode: unknown = node): void => {
    const start = (startNode as Node | null)?.range?.[0];
    const end = (node as Node | null)?.range?.[1];
    if (start !== undefined && end !== undefined) places[name] = { line: lineOf(start), endLine: lineOf(end - 1) };
  };
  const putFields = (owner: string, map: unknown): void => {
    if (!isMap(map)) return;
    for (const { key, value } of map.items)
      if (isScalar(key)) put(`${owner} policy ${String(key.value)}`, value ?? key, key);
  };
  const putPolicies = (owner: string, node: unknown): void => {
    if (!isMap(node)) return;
    putFields(owner, node.get("policies"));
    for (const [field, scope] of Object.entries(INNER_SCOPES)) {
      const list = node.get(field);
      for (const item of isSeq(list) ? list.items : [])
        if (isMap(item)) putPolicies(`${owner} of ${scope} ${String(item.get("name"))}`, item);
    }
  };
  if (!isMap(root)) return places;
  const kind = root.get("kind");
  if (kind !== undefined) {
    const name = `${String(kind)} ${String(root.getIn(["metadata", "name"]) ?? "")}`;
    put(name, root);
    if (kind === "GatewayPolicy") putFields(name, root.get("spec"));
    return places;
  }
  for (const pair of root.items) {
    const section = isScalar(pair.key) ? String(pair.key.value) : "";
    if (section === "gateways" && isMap(pair.value))
      for (const gateway of pair.value.items) {
        const name = `listener ${isScalar(gateway.key) ? String(gateway.key.value) : ""}`;
        put(name, gateway.value, gateway.key);
        putPolicies(name, gateway.value);
      }
    else if (section === "routes" && isSeq(pair.value))
      for (const [i, route] of pair.value.items.entries()) {
        const name = `route ${String((isMap(route) ? route.get("name") : undefined) ?? `route${i}`)}`;
        put(name, route);
        putPolicies(name, route);
        const backends = isMap(route) ? route.get("backends") : undefined;
        for (const [j, backend] of (isSeq(backends) ? backends.items : []).entries()) {
          putPolicies(`${name} backend ${j}`, backend);
          if (isMap(backend)) putPolicies(name, backend.get("ai"));
        }
      }
    else if (section !== "config" && section !== "services") {
      put(`listener ${section}`, pair.value, pair.key);
      put(`route ${section}`, pair.value, pair.key);
      putPolicies(`route ${section}`, pair.value);
    }
  }
  return places;
}

/** A marker takes one line, also in place of a secret with several. */
function shownPlaces(
  places: Places,
  hidden: readonly Span[],
  text: string,
  lineOf: (offset: number) => number,
): Places {
  const removed = hidden
    .map(({ start, end }) => ({ line: lineOf(start), lines: text.slice(start, end).split("\n").length - 1 }))
    .filter(({ lines }) => lines > 0);
  if (removed.length === 0) return places;
  const shown = (line: number): number =>
    removed.reduce((moved, one) => moved - Math.min(one.lines, Math.max(0, line - one.line)), line);
  return Object.fromEntries(
    Object.entries(places).map(([name, { line, endLine }]) => [name, { line: shown(line), endLine: shown(endLine) }]),
  );
}

function repeatedIn(text: string, spans: readonly Span[]): Span[] {
  const values = new Set(spans.map(({ start, end }) => text.slice(start, end).replace(/^["']|["']$/g, "")));
  return [...values].flatMap((value) => {
    if (value.length < MIN_REPEATED_CHARS || /\s/.test(value)) return [];
    const found: Span[] = [];
    for (let at = text.indexOf(value); at >= 0; at = text.indexOf(value, at + value.length))
      found.push({ start: at, end: at + value.length });
    return found;
  });
}

function replaceSpans(text: string, spans: readonly Span[]): { text: string; secrets: string[] } {
  const secrets: string[] = [];
  let shown = "";
  let from = 0;
  for (const { start, end } of spans) {
    shown += `${text.slice(from, start)}<redacted:${secrets.length}>`;
    secrets.push(text.slice(start, end));
    from = end;
  }
  return { text: shown + text.slice(from), secrets };
}

function merged(spans: readonly Span[]): Span[] {
  const result: Span[] = [];
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    const last = result.at(-1);
    if (last === undefined || span.start >= last.end) result.push(span);
    else if (span.end > last.end) result.splice(-1, 1, { start: last.start, end: span.end });
  }
  return result;
}

export interface Span {
  readonly start: number;
  readonly end: number;
}

const SECRET_ASSIGNMENT =
  /[\w.-]*(?:secret|passw|htpasswd|token|key|auth|cookie|credential)[\w.-]*["']?\s*[:=]\s*(\S.*)$/gim;
/** A variable reference reveals nothing, and a marker of the editor is already redacted. */
const HARMLESS_VALUE = /^["']?(?:\$\{\w+\}|<redacted:\d+>)["']?[\s\]},]*$/;
const REDACTION = createRedaction();
const BLOCK_SCALAR = /^[|>][0-9+-]*\s*(?:#.*)?$/;

export function secretLines(text: string): Span[] {
  const spans: Span[] = [];
  for (const match of text.matchAll(SECRET_ASSIGNMENT)) {
    const value = match[1] as string;
    if (value.startsWith("#") || HARMLESS_VALUE.test(value)) continue;
    const end = match.index + match[0].length;
    const start = end - value.length;
    spans.push({ start, end: BLOCK_SCALAR.test(value) ? endOfBlock(text, start, end) : end });
  }
  return [...spans, ...recognizedIn(text)];
}

function recognizedIn(text: string): Span[] {
  const words = [...text.matchAll(/[^\s,[\]{}]+/g)].filter(([word]) => word !== "-");
  const bare = words.map(([word]) => word.replace(/^["']|["']$/g, ""));
  const shown = redactArguments(bare);
  const spans = words.flatMap(({ 0: word, index }, i) =>
    shown[i] === bare[i] ? [] : [{ start: index, end: index + word.length }],
  );
  for (const { 0: line, index } of text.matchAll(/\S.*$/gm))
    if (REDACTION.expression(line) !== line) spans.push({ start: index, end: index + line.length });
  return spans.filter(({ start, end }) => !HARMLESS_VALUE.test(text.slice(start, end)));
}

/** The block includes empty lines and all lines that are indented deeper than the line that opens it. */
function endOfBlock(text: string, opened: number, end: number): number {
  const lineStart = text.lastIndexOf("\n", opened) + 1;
  const indent = /^ */.exec(text.slice(lineStart))?.[0].length ?? 0;
  let at = end;
  while (at < text.length) {
    const next = text.indexOf("\n", at + 1);
    const line = text.slice(at + 1, next < 0 ? undefined : next);
    if (line.trim() !== "" && line.search(/\S/) <= indent) break;
    at = next < 0 ? text.length : next;
  }
  return text.slice(0, at).trimEnd().length;
}
