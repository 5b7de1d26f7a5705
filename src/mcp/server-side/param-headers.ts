/**
 * Tool parameters that HTTP headers repeat (`x-mcp-header` in a tool's input schema, 2026-07-28). The gateway checks
 * the headers where it is the HTTP endpoint of a server, and adds them where it is the HTTP client of one. It learns
 * the annotations from tool lists that pass through.
 */

import { isHeaderName } from "../../base/header-names.ts";
import { HeaderList } from "../../http/headers.ts";
import { elements, find, slice } from "../../json/json-text.ts";
import type { Failure } from "../protocol/call.ts";
import type { ClientRequest, ServerMessage } from "../protocol/json-rpc.ts";
import { mirrorHeader, readMirrorHeader } from "../protocol/mirror-headers.ts";
import { HEADER_MISMATCH } from "../protocol/protocol-version.ts";

const ANNOTATION = "x-mcp-header";
/** Deeper than any real tool's parameters. */
const MAX_DEPTH = 8;
const MAX_TOOLS = 10_000;
/** A tool list is parsed without slicing, so its size is limited. */
const MAX_LEARNED_CHARS = 1024 * 1024;

interface MirroredParam {
  /** `mcp-param-…`, lower case. */
  readonly header: string;
  /** Property names below `arguments`. */
  readonly path: readonly string[];
}

type Json = Readonly<Record<string, unknown>>;

export class ParamHeaders {
  readonly #tools = new Map<string, readonly MirroredParam[]>();
  /** Whether a tool list was seen. */
  isLearned = false;

  /** Records the annotations of a `tools/list` response. */
  learn(message: ServerMessage): void {
    this.isLearned = true;
    // Few servers use annotations, so lists without them are not parsed.
    if (message.text.length > MAX_LEARNED_CHARS || !message.text.includes(`"${ANNOTATION}"`)) return;
    const list = find(message.text, 0, "result", "tools");
    for (const span of list ? elements(message.text, list.start) : []) {
      const tool = JSON.parse(slice(message.text, span)) as { name?: unknown; inputSchema?: unknown } | null;
      if (typeof tool?.name !== "string" || this.#tools.size >= MAX_TOOLS) continue;
      const params: MirroredParam[] = [];
      collect(tool.inputSchema, [], params);
      this.#tools.set(tool.name, params);
    }
  }

  /** Returns the reason the call's headers are invalid, or undefined if they are valid. */
  problem(request: ClientRequest, headers: HeaderList): Failure | undefined {
    const args = request.params.arguments;
    for (const { header, path } of this.#tools.get(String(request.params.name)) ?? []) {
      const value = textAt(args, path);
      const raw = headers.get(header);
      if (value === undefined && raw === undefined) continue;
      const said = raw === undefined ? undefined : readMirrorHeader(raw);
      if (said === undefined || value === undefined || !isSame(said, value)) {
        const what =
          raw === undefined ? "is missing" : said === undefined ? "is not well formed" : "differs from the body";
        return { code: HEADER_MISMATCH, status: 400, message: `Header mismatch: ${header} ${what}` };
      }
    }
    return undefined;
  }

  /** Adds the headers that the call requires. */
  added(request: ClientRequest, headers: HeaderList | undefined): HeaderList | undefined {
    const params = this.#tools.get(String(request.params.name)) ?? [];
    if (params.length === 0) return headers;
    const list = headers?.clone() ?? new HeaderList();
    for (const { header, path } of params) {
      const value = textAt(request.params.arguments, path);
      if (value === undefined) list.delete(header);
      else list.set(header, mirrorHeader(value));
    }
    return list;
  }
}

/** Collects annotations along `properties`, the only place where they are allowed. */
function collect(schema: unknown, path: readonly string[], found: MirroredParam[]): void {
  const properties = (schema as Json | null | undefined)?.properties;
  if (typeof properties !== "object" || properties === null || path.length >= MAX_DEPTH) return;
  for (const [key, child] of Object.entries(properties as Json)) {
    const name = (child as Json | null | undefined)?.[ANNOTATION];
    if (typeof name === "string" && isHeaderName(name))
      found.push({ header: `mcp-param-${name.toLowerCase()}`, path: [...path, key] });
    collect(child, [...path, key], found);
  }
}

/** The value as header text; undefined if it is missing or not a scalar. */
function textAt(args: unknown, path: readonly string[]): string | undefined {
  let at = args;
  for (const key of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Json)[key];
  }
  return typeof at === "string" || typeof at === "number" || typeof at === "boolean" ? String(at) : undefined;
}

/** Numbers are compared as numbers: `42.0` is `42`. */
function isSame(sent: string, value: string): boolean {
  return (
    sent === value ||
    (sent.trim() !== "" && value !== "" && Number.isFinite(Number(value)) && Number(sent) === Number(value))
  );
}
