/**
 * Parses an OpenAPI 3 description and resolves its internal references. Other versions are rejected, and references to
 * other files are not followed.
 */
import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { readLooseYaml } from "../../base/read-yaml.ts";
import { readJson } from "../../json/read-json.ts";

const DESCRIPTION = peerInput("openapi-server/description");

export type Json = Readonly<Record<string, unknown>>;

const MAX_REFERENCES = 32;

export interface OpenApiDocument {
  readonly root: Json;
  readonly title: string;
  readonly version: string;
  readonly description: string | undefined;
  /** The first server that is an absolute URL without variables. */
  readonly server: string | undefined;
}

/** Returns undefined if the text is not JSON. */
export function parseJsonOpenApi(text: string): OpenApiDocument | undefined {
  const root = parsedJson(text);
  return root === undefined ? undefined : openApiDocument(root);
}

/** The limit of YAML is lower, and its parser is slow, so descriptions of peers in YAML are parsed in a worker thread. */
export function parseOpenApi(text: string, yaml: PeerInput<"YAML">): OpenApiDocument {
  return openApiDocument(parsedJson(text) ?? parsedYaml(text, yaml));
}

function openApiDocument(root: unknown): OpenApiDocument {
  if (!isObject(root)) throw new Error("it is not an OpenAPI description");
  if (root.swagger !== undefined) throw new Error("Swagger 2.0 is not supported: convert the description to OpenAPI 3");
  if (typeof root.openapi !== "string" || !/^3\.\d/.test(root.openapi))
    throw new Error("it is not an OpenAPI 3 description (no `openapi: 3.x`)");
  if (!isObject(root.paths)) throw new Error("the description has no `paths`");
  const info = isObject(root.info) ? root.info : {};
  return {
    root,
    title: typeof info.title === "string" ? info.title.slice(0, 200) : "API",
    version: typeof info.version === "string" ? info.version.slice(0, 64) : "0",
    description: typeof info.description === "string" ? info.description : undefined,
    server: firstServer(root.servers),
  };
}

/** Follows `$ref`. Throws an Error if a reference cannot be resolved or the value is not an object. */
export function resolved(document: OpenApiDocument, value: unknown): Json {
  let current = value;
  for (let i = 0; i < MAX_REFERENCES; i++) {
    if (!isObject(current)) throw new Error("expected an object");
    if (typeof current.$ref !== "string") return current;
    current = pointedTo(document, current.$ref);
  }
  throw new Error("its references form a cycle");
}

export function pointedTo(document: OpenApiDocument, reference: string): unknown {
  if (!reference.startsWith("#/")) throw new Error(`the reference ${reference.slice(0, 200)} leads out of the file`);
  let current: unknown = document.root;
  for (const part of reference.slice(2).split("/")) {
    const key = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, key))
      throw new Error(`the reference ${reference.slice(0, 200)} leads nowhere`);
    current = (current as Json)[key];
  }
  return current;
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parsedJson(text: string): unknown {
  try {
    // The JSON parser is far faster than the YAML parser.
    if (/^\s*\{/.test(text)) return readJson(DESCRIPTION, text);
  } catch {
    // A YAML flow mapping also starts with a brace.
  }
  return undefined;
}

function parsedYaml(text: string, yaml: PeerInput<"YAML">): unknown {
  if (text.length > yaml.maxBytes)
    throw new Error("it is a YAML file of more than 1 MiB. Convert it to JSON, which is parsed much faster");
  try {
    return readLooseYaml(yaml, text);
  } catch (error) {
    throw new Error(`it is neither JSON nor YAML: ${error instanceof Error ? error.message.split("\n", 1)[0] : ""}`);
  }
}

function firstServer(servers: unknown): string | undefined {
  for (const one of Array.isArray(servers) ? servers : []) {
    const url = isObject(one) ? one.url : undefined;
    if (typeof url === "string" && /^https?:\/\/[^{}\s]+$/.test(url)) return url;
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
