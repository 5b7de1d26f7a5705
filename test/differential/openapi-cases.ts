/**
 * Descriptions of APIs and hostile arguments for their tools, and the arguments that a server reads from a request by the
 * description alone.
 */
import type { Random } from "../support/random.ts";

export type Json = Readonly<Record<string, unknown>>;

interface Declared {
  readonly name: string;
  readonly in: "path" | "query" | "header" | "cookie";
  readonly style: string;
  readonly explode: boolean;
  readonly isJson: boolean;
  readonly schema: Schema;
}

interface Schema {
  readonly type: "string" | "integer" | "number" | "boolean" | "array" | "object";
  readonly item?: "string" | "integer";
}

export interface ApiOperation {
  readonly name: string;
  readonly parameters: readonly Declared[];
  readonly body: "json" | "form" | "multipart" | "text" | undefined;
}

/** What a server received, with decoded names and values. */
export interface ApiReading {
  readonly segment: string;
  readonly query: readonly (readonly [string, string])[];
  readonly headers: readonly (readonly [string, string])[];
  readonly cookies: Readonly<Record<string, string>>;
  readonly form: readonly (readonly [string, string])[] | null;
  readonly json: unknown;
  readonly text: string | null;
}

/** The gateway's own. Arguments must neither repeat nor replace them. */
export const OWN_KEY = ["api_key", "own-key"] as const;
export const OWN_HEADER = ["x-tenant", "own-tenant"] as const;

const SCALARS = ["string", "integer", "number", "boolean"] as const;
const FIELDS: Readonly<Record<string, Schema>> = {
  user: { type: "string" },
  count: { type: "integer" },
  tags: { type: "array", item: "string" },
  extra: { type: "object" },
};

export function apiOperation(random: Random, i: number): ApiOperation {
  const scalar = (): Schema => ({ type: random.pick(SCALARS) });
  const list = (): Schema => ({ type: "array", item: random.pick(["string", "integer"] as const) });
  const simple = { style: "simple", explode: false, isJson: false };
  const parameters: Declared[] = [
    {
      ...simple,
      name: "p",
      in: "path",
      style: random.pick(["simple", "simple", "simple", "label", "matrix"]),
      schema: random.oneIn(3) ? list() : scalar(),
    },
  ];
  const names = ["user", "q", "page[size]", "a-b", "limit", "f"].filter(() => random.oneIn(2));
  let spreads = false;
  for (const name of names) {
    const kind = random.int(4);
    const query = { name, in: "query", style: "form", explode: true, isJson: false } as const;
    if (kind === 0 && !name.includes("[")) {
      const [style, explode] = random.pick([["deepObject", true], ["form", false], ["form", true]] as const); // biome-ignore format: pairs
      // Two objects that are spread could not be told apart by any server.
      if (style === "form" && explode && spreads) continue;
      spreads ||= style === "form" && explode;
      parameters.push({ ...query, style, explode, schema: { type: "object" } });
    } else if (kind === 1) {
      const [style, explode] = random.pick([["form", true], ["form", false], ["spaceDelimited", false], ["pipeDelimited", false]] as const); // biome-ignore format: pairs
      parameters.push({ ...query, style, explode, schema: list() });
    } else parameters.push({ ...query, isJson: kind === 2 && random.oneIn(2), schema: scalar() });
  }
  if (random.oneIn(2))
    parameters.push({ ...simple, name: "x-user", in: "header", schema: random.oneIn(3) ? list() : scalar() });
  if (random.oneIn(3)) parameters.push({ ...simple, name: "session", in: "cookie", style: "form", schema: scalar() });
  return {
    name: `o${i}`,
    parameters,
    body: random.pick([undefined, undefined, "json", "form", "multipart", "text"] as const),
  };
}

export function apiDescription(operations: readonly ApiOperation[]): Json {
  return {
    openapi: "3.1.0",
    info: { title: "t", version: "1" },
    paths: Object.fromEntries(
      operations.map(({ name, parameters, body }) => [
        `/${name}/{p}`,
        {
          post: {
            operationId: name,
            responses: {},
            parameters: parameters.map(({ isJson, schema, ...one }) => ({
              ...one,
              required: one.in === "path",
              ...(isJson ? { content: { "application/json": { schema: {} } } } : { schema: jsonSchema(schema) }),
            })),
            ...(body === undefined
              ? {}
              : { requestBody: { content: { [TYPES[body]]: { schema: bodySchema(body) } } } }),
          },
        },
      ]),
    ),
  };
}

const TYPES = {
  json: "application/json",
  form: "application/x-www-form-urlencoded",
  multipart: "multipart/form-data",
  text: "text/plain",
};

function jsonSchema({ type, item }: Schema): Json {
  if (type === "array") return { type, items: { type: item } };
  return type === "object" ? { type, additionalProperties: { type: "string" } } : { type };
}

function bodySchema(body: keyof typeof TYPES): Json {
  if (body === "json") return {};
  if (body === "text") return { type: "string" };
  return {
    type: "object",
    properties: Object.fromEntries(Object.entries(FIELDS).map(([name, one]) => [name, jsonSchema(one)])),
  };
}

const PIECES = [
  "a", "user", "bob", "5", "-1", "1e3", "true", "null", "é", "漢", "🙂", "\ud800", " ", "  ", "\t", "\n", "\r\n", "\0", ",", ";", "=", "&", "?", "#", "+", "%", "%2F", "%26",
  "%252e", "/", "\\", "..", ".", "|", "[", "]", "[]", "\"", "'", "api_key=x", "&user=bob", "; user=bob", "{\"a\":1}", "--form-", "x-user: bob", "~", "$", "@", ":", "*", "(", "!",
]; // biome-ignore format: a table
const KEYS = ["a", "b", "user", "User", "q", "limit", "api_key", "API_KEY", "user[]", "user.id", "a][b", "x y", "page", "page[size]", "f", "é", "__proto__", "constructor", "x-tenant", ""]; // biome-ignore format: a table

function text(random: Random): string {
  return !random.oneIn(4) ? random.pick(["a", "bob", "id-1", "x y", "é", "42", "a.b"]) : random.text(PIECES, 4);
}

function hostile(random: Random, depth = 0): unknown {
  switch (random.int(depth > 2 ? 5 : 8)) {
    case 0:
      return random.pick([0, -0, 1, -5, 1.5, 2 ** 53, 2 ** 53 - 1, 1e21, 1e-7, 4111111111111111]);
    case 1:
      return random.oneIn(2);
    case 2:
      return null;
    case 3:
    case 4:
      return text(random);
    case 5:
    case 6:
      return random.list(3, () => hostile(random, depth + 1));
    default:
      return object(random, () => hostile(random, depth + 1));
  }
}

function object(random: Random, make: () => unknown): Json {
  return Object.fromEntries(random.list(3, () => [random.pick(KEYS), make()] as const));
}

function fitting(random: Random, { type, item }: Schema): unknown {
  switch (type) {
    case "string":
      return text(random);
    case "integer":
      return random.pick([0, 1, -5, 42, 2 ** 53 - 1]);
    case "number":
      return random.pick([0, -0, 1, 1.5, -2.25, 1e-7, 1e21, 123456789.125]);
    case "boolean":
      return random.oneIn(2);
    case "array": {
      const one = (): unknown => fitting(random, { type: item ?? "string" });
      return [...random.list(2, one), one()];
    }
    case "object":
      return random.oneIn(4)
        ? object(random, () => text(random))
        : Object.fromEntries([
            ["a", text(random)],
            ...random.list(2, () => [random.pick(["b", "constructor", "é"]), text(random)] as const),
          ]);
  }
}

export function apiArguments(random: Random, { parameters, body }: ApiOperation): Json {
  const values: Record<string, unknown> = {};
  // Most values fit, or hardly any call would be sent.
  const value = (schema: Schema): unknown => (random.oneIn(25) ? hostile(random) : fitting(random, schema));
  for (const { name, in: place, isJson, schema } of parameters)
    if (place === "path" || !random.oneIn(3)) values[name] = isJson ? hostile(random) : value(schema);
  if (random.oneIn(20)) values[random.pick(KEYS)] = hostile(random);
  if (body === "json" && !random.oneIn(4)) values.body = hostile(random);
  if (body === "text" && !random.oneIn(4)) values.body = value({ type: "string" });
  if (body === "form" || body === "multipart") {
    const fields: Record<string, unknown> = {};
    for (const [name, schema] of Object.entries(FIELDS)) if (random.oneIn(2)) fields[name] = value(schema);
    if (random.oneIn(4)) fields[random.pick(KEYS)] = value({ type: "string" });
    if (!random.oneIn(4)) values.body = random.oneIn(12) ? hostile(random) : fields;
  }
  return values;
}

/** Node removes a byte order mark from values, so it reads the bytes as characters, which are decoded afterwards. */
async function multipartFields(body: Buffer, type: string): Promise<(readonly [string, string])[]> {
  const characters = body.toString("latin1");
  const form = await new Response(Buffer.from(characters), { headers: { "content-type": type } }).formData();
  const decoded = (text: string): string => Buffer.from(text, "latin1").toString();
  return [...form].map(([name, one]) => [decoded(name), decoded(String(one))] as const);
}

/** Reads a request like a server on Node. Headers that no description declares are left out. */
export async function readRequest(
  url: string,
  headers: readonly (readonly [string, string])[],
  body: Buffer,
): Promise<ApiReading> {
  const [path = "", query = ""] = url.split(/\?(.*)/s, 2);
  const type = headers.find(([name]) => name === "content-type")?.[1] ?? "";
  const form = type.startsWith("multipart/form-data")
    ? await multipartFields(body, type)
    : type === "application/x-www-form-urlencoded"
      ? [...new URLSearchParams(body.toString())]
      : undefined;
  const cookies = headers.flatMap(([name, value]) => (name === "cookie" ? value.split("; ") : []));
  return {
    segment: decodeURIComponent(path.split("/")[2] ?? ""),
    query: [...new URLSearchParams(query)],
    headers: headers.filter(([name]) => name === OWN_HEADER[0] || name === "x-user"),
    cookies: Object.fromEntries(cookies.map((one) => one.split(/=(.*)/s, 2) as [string, string])),
    form: form ?? null,
    json: type === "application/json" ? JSON.parse(body.toString()) : undefined,
    text: type.startsWith("text/plain") ? body.toString() : null,
  };
}

/** Reads the arguments from what a server received. Throws an Error for anything that no argument can have sent. */
export function readArguments({ parameters, body }: ApiOperation, reading: ApiReading): Json {
  const values: Record<string, unknown> = Object.create(null);
  const query = [...reading.query];
  const take = (fits: (name: string) => boolean): (readonly [string, string])[] => {
    const taken = query.filter(([name]) => fits(name));
    for (const one of taken) query.splice(query.indexOf(one), 1);
    return taken;
  };
  const key = take((name) => name === OWN_KEY[0]);
  if (key.length !== 1 || key[0]?.[1] !== OWN_KEY[1]) throw new Error("the gateway's key was changed");
  const spread = parameters.find(
    (one) => one.style === "form" && one.in === "query" && one.explode && one.schema.type === "object",
  );
  for (const parameter of parameters) {
    const { name, in: place, style, explode, schema } = parameter;
    if (place === "path") values[name] = readPath(parameter, reading.segment);
    else if (place === "query" && parameter !== spread) {
      if (style === "deepObject") {
        const members = take((own) => own.startsWith(`${name}[`) && own.endsWith("]"));
        if (members.length > 0)
          values[name] = Object.fromEntries(members.map(([own, one]) => [own.slice(name.length + 1, -1), one]));
        continue;
      }
      const texts = take((own) => own === name).map(([, one]) => one);
      if (texts.length === 0) continue;
      if (schema.type === "array" && explode) values[name] = texts.map((one) => scalar(schema.item, one));
      else values[name] = readOne(parameter, texts);
    } else if (place === "cookie" && Object.hasOwn(reading.cookies, name))
      values[name] = scalar(schema.type, reading.cookies[name] ?? "");
  }
  if (spread && query.length > 0) {
    values[spread.name] = Object.fromEntries(query);
    if (new Set(query.map(([name]) => name)).size !== query.length) throw new Error("a spread name is repeated");
    query.length = 0;
  }
  if (query.length > 0) throw new Error(`parameters of no argument: ${JSON.stringify(query)}`);
  for (const [name, one] of reading.headers) {
    const parameter = parameters.find((other) => other.in === "header" && other.name === name);
    if (name === OWN_HEADER[0]) {
      if (one !== OWN_HEADER[1]) throw new Error("the gateway's header was changed");
    } else if (parameter === undefined || Object.hasOwn(values, name))
      throw new Error(`the header ${name} of no argument`);
    else values[name] = readOne(parameter, [one]);
  }
  for (const name of Object.keys(reading.cookies))
    if (!parameters.some((one) => one.in === "cookie" && one.name === name)) throw new Error(`the cookie ${name}`);
  if (body === "json" && reading.json !== undefined) values.body = reading.json;
  if (body === "text" && reading.text !== null) values.body = reading.text;
  if ((body === "form" || body === "multipart") && reading.form !== null) values.body = readForm(reading.form);
  return values;
}

const SEPARATORS: Readonly<Record<string, string>> = { spaceDelimited: " ", pipeDelimited: "|" };

function readOne({ name, isJson, style, schema }: Declared, texts: readonly string[]): unknown {
  if (texts.length !== 1) throw new Error(`${name} is repeated`);
  const [one = ""] = texts;
  if (isJson) return JSON.parse(one);
  if (schema.type === "array") return one.split(SEPARATORS[style] ?? ",").map((part) => scalar(schema.item, part));
  if (schema.type !== "object") return scalar(schema.type, one);
  const parts = one.split(",");
  if (parts.length % 2 !== 0) throw new Error(`${name} has a name without a value`);
  return Object.fromEntries(parts.flatMap((part, i) => (i % 2 === 0 ? [[part, parts[i + 1]]] : [])));
}

function readPath({ style, explode, schema }: Declared, segment: string): unknown {
  const prefix = style === "label" ? "." : style === "matrix" ? ";p=" : "";
  if (!segment.startsWith(prefix)) throw new Error(`the path segment ${segment}`);
  const own = segment.slice(prefix.length);
  if (schema.type !== "array") return scalar(schema.type, own);
  return own.split(explode ? prefix : ",").map((part) => scalar(schema.item, part));
}

function scalar(type: Schema["type"] | undefined, one: string): unknown {
  if (type === "integer" || type === "number") {
    if (one.trim() !== one || one === "" || Number.isNaN(Number(one))) throw new Error(`${one} is not a number`);
    return Number(one);
  }
  if (type !== "boolean") return one;
  if (one !== "true" && one !== "false") throw new Error(`${one} is not a boolean`);
  return one === "true";
}

function readForm(form: readonly (readonly [string, string])[]): Json {
  const fields: Record<string, unknown> = Object.create(null);
  for (const [name, one] of form) {
    const type = Object.hasOwn(FIELDS, name) ? FIELDS[name]?.type : "string";
    if (type === "array") fields[name] = [...((fields[name] as unknown[] | undefined) ?? []), one];
    else if (Object.hasOwn(fields, name)) throw new Error(`the field ${name} is repeated`);
    else fields[name] = type === "object" ? JSON.parse(one) : scalar(type, one);
  }
  return fields;
}

/** JSON with sorted names. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_name, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}
