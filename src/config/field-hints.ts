/**
 * What a field was probably meant to be, where no similar name is near: the words of other programs, and fields that
 * stand one level too high. A hint is the tail of a message; nothing is guessed that is not certain.
 */
import { z } from "zod";
import { knownKeys, unwrap } from "./schema-walk.ts";

/** What clients, bridges and other gateways call it, and where it is written here. */
const FOREIGN_NAMES: Readonly<Record<string, string>> = {
  mcpServers: "mcp.targets",
  servers: "mcp.targets",
  binds: "gateways and routes",
  listeners: "gateways",
  model_list: "llm.models",
  command: "stdio.cmd",
  localRateLimit: "rateLimit.local",
  remoteRateLimit: "rateLimit.global",
};

export function fieldHint(key: string, schemas: readonly z.ZodType[]): string {
  const here = Object.hasOwn(FOREIGN_NAMES, key) ? FOREIGN_NAMES[key] : undefined;
  if (here === undefined) return rightPlace(key, schemas);
  // `command` inside `stdio` is just `cmd`.
  const last = here.slice(here.indexOf(".") + 1);
  return `: here it is written as \`${knownKeys(schemas).includes(last) ? last : here}\``;
}

/** `port: "3000"`. */
export function quotesHint(expected: string, value: unknown): string {
  const isNumber = expected === "number" || expected === "int";
  return isNumber && typeof value === "string" && /^\d+$/.test(value) ? ": leave the quotes out" : "";
}

/** Wrong indentation (`cmd` beside `stdio`), or a policy beside `policies`. */
function rightPlace(key: string, schemas: readonly z.ZodType[]): string {
  for (const schema of schemas) {
    if (!(schema instanceof z.ZodObject)) continue;
    for (const [name, field] of Object.entries(schema.shape as Record<string, z.ZodType>)) {
      const inside = unwrap(field).flatMap((one) =>
        one instanceof z.ZodArray ? unwrap(one.element as z.ZodType) : [one],
      );
      if (knownKeys(inside).includes(key)) return `: it belongs below \`${name}\``;
    }
  }
  return "";
}
