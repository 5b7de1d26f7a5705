/**
 * What a field was probably meant to be, where no similar name is near: the words of other programs, and fields that
 * stand one level too high. A hint is the tail of a message; nothing is guessed that is not certain.
 */

import { z } from "zod";
import { lookupTable } from "../../base/lookup-table.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { foreignWord } from "./foreign-words.ts";
import { below, knownKeys, unwrap } from "./schema-walk.ts";

/** What clients, bridges and other gateways call it, and where it is written here. */
const FOREIGN_NAMES = lookupTable<string>({
  mcpServers: "mcp.targets",
  servers: "mcp.targets",
  listeners: "gateways",
  model_list: "llm.models",
  command: "stdio.cmd",
  localRateLimit: "rateLimit.local",
  remoteRateLimit: "rateLimit.global",
});

const MAX_PLACES = 3;

/** The tail of the message: a word of another program, a typo, or a field at the wrong level. */
export function unknownFieldHint(key: string, schemas: readonly z.ZodType[]): string {
  const known = knownKeys(schemas);
  const foreign = foreignWord(key, known);
  return foreign === undefined ? suggestion(key, known) || fieldHint(key, schemas) : `: ${foreign}`;
}

function fieldHint(key: string, schemas: readonly z.ZodType[]): string {
  const meant = Object.hasOwn(FOREIGN_NAMES, key) ? FOREIGN_NAMES[key] : undefined;
  if (meant !== undefined) {
    const here = foreignPlace(meant, schemas);
    return here === undefined ? "" : `: use \`${here}\``;
  }
  const places = placesOf(key, schemas);
  return places.length === 0 ? "" : `: move it below ${places.map((name) => `\`${name}\``).join(" or ")}`;
}

/** Where it leads from here: `command` inside `stdio` is just `cmd`; among rate limits it is nothing that we know. */
function foreignPlace(meant: string, schemas: readonly z.ZodType[]): string | undefined {
  const [first = meant, last = meant] = meant.split(".");
  const known = knownKeys(schemas);
  if (known.includes(last)) return last;
  if (known.includes(first)) return meant;
  const [place, another] = placesOf(first, schemas);
  return place === undefined || another !== undefined ? undefined : `${place}.${meant}`;
}

/** `port: "3000"`. */
export function quotesHint(expected: string, value: unknown): string {
  const isNumber = expected === "number" || expected === "int";
  return isNumber && typeof value === "string" && /^\d+$/.test(value) ? ": remove the quotes" : "";
}

/** `authority: { full: x }`, `key: { value: x }`: others wrap a text; `stdio: "npx -y x"`: others take a command line. */
export function objectHint(expected: string, value: unknown): string {
  if (expected === "object" && typeof value === "string" && value.includes(" "))
    return ": write `cmd` and `args` if it is a command";
  if (expected !== "string" || typeof value !== "object" || value === null || Array.isArray(value)) return "";
  const wrapped = ["full", "value", "exact"].find((name) => Object.hasOwn(value, name));
  return wrapped === undefined ? "" : `: write the text of \`${wrapped}\` itself`;
}

/**
 * The fields here that know the key: wrong indentation (`cmd` beside `stdio`), or a policy beside `policies`. Where
 * many do, or entries with names of their own (`port` of a gateway), nobody can say which was meant.
 */
function placesOf(key: string, schemas: readonly z.ZodType[]): string[] {
  const knows = (list: readonly z.ZodType[]): boolean => knownKeys(list).includes(key);
  const fields = [...new Set(knownKeys(schemas))].map((name) => ({ name, inner: below(schemas, name) }));
  const isOfEntries = fields.some(({ inner }) => knows(entriesOf(inner)));
  const names = fields.filter(({ inner }) => knows([...inner, ...elementsOf(inner)])).map(({ name }) => name);
  return isOfEntries || names.length > MAX_PLACES ? [] : names;
}

function elementsOf(schemas: readonly z.ZodType[]): z.ZodType[] {
  return schemas.flatMap((one) => (one instanceof z.ZodArray ? unwrap(one.element as z.ZodType) : []));
}

function entriesOf(schemas: readonly z.ZodType[]): z.ZodType[] {
  return schemas.flatMap((one) => (one instanceof z.ZodRecord ? unwrap(one.valueType as z.ZodType) : []));
}
