/**
 * Handles tool parameters that are also sent in HTTP headers (`x-mcp-header` in a tool's input schema, 2026-07-28).
 */

import { isHeaderName } from "../../base/header-names.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { HeaderList } from "../../http/headers.ts";
import { elements, find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Failure, Interceptor } from "../protocol/call.ts";
import type { ClientRequest, ServerMessage } from "../protocol/json-rpc.ts";
import { mirrorHeader, readMirrorHeader } from "../protocol/mirror-headers.ts";
import { HEADER_MISMATCH } from "../protocol/protocol-version.ts";

const TOOL = peerInput("mcp-server/tool");

const ANNOTATION = "x-mcp-header";
const MAX_DEPTH = 8;
const MAX_TOOLS = 10_000;
/** Larger tool lists are not parsed, because parsing would block the event loop. */
const MAX_LEARNED_CHARS = 1024 * 1024;

interface MirroredParam {
  readonly header: string;
  readonly path: readonly string[];
}

type Json = Readonly<Record<string, unknown>>;

export class ParamHeaders {
  readonly #tools = new Map<string, readonly MirroredParam[]>();
  isLearned = false;
  readonly learning: Interceptor = {
    result: (_call, message) => {
      this.learn(message);
      return undefined;
    },
  };

  learn(message: ServerMessage): void {
    this.isLearned = true;
    // Few servers use annotations, so lists without them are not parsed.
    if (message.text.length > MAX_LEARNED_CHARS || !message.text.includes(`"${ANNOTATION}"`)) return;
    const list = find(message.text, 0, "result", "tools");
    for (const span of list ? elements(message.text, list.start) : []) {
      const tool = readJson(TOOL, slice(message.text, span)) as { name?: unknown; inputSchema?: unknown } | null;
      if (typeof tool?.name !== "string" || this.#tools.size >= MAX_TOOLS) continue;
      const params: MirroredParam[] = [];
      collect(tool.inputSchema, [], params);
      this.#tools.set(tool.name, params);
    }
  }

  problem(request: ClientRequest, headers: HeaderList): Failure | undefined {
    const args = request.params.arguments;
    for (const { header, path } of this.#tools.get(String(request.params.name)) ?? []) {
      const value = textAt(args, path);
      const raw = headers.get(header);
      if (value === undefined && raw === undefined) continue;
      const decoded = raw === undefined ? undefined : readMirrorHeader(raw);
      if (decoded === undefined || value === undefined || !isSame(decoded, value)) {
        const what =
          raw === undefined ? "is missing" : decoded === undefined ? "is not well formed" : "differs from the body";
        return { code: HEADER_MISMATCH, status: 400, message: `Header mismatch: ${header} ${what}` };
      }
    }
    return undefined;
  }

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

function textAt(args: unknown, path: readonly string[]): string | undefined {
  let at = args;
  for (const key of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Json)[key];
  }
  return typeof at === "string" || typeof at === "number" || typeof at === "boolean" ? String(at) : undefined;
}

/** Compares numbers by value, so that `42.0` equals `42`. */
function isSame(sent: string, value: string): boolean {
  return (
    sent === value ||
    (sent.trim() !== "" && value !== "" && Number.isFinite(Number(value)) && Number(sent) === Number(value))
  );
}
