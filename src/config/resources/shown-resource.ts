/**
 * A GatewayPolicy's spec as it may be shown (dump, UI, status): secrets replaced. The schema says what is secret, so
 * what the schema does not know, and a security part that does not fit it, is not shown at all: a misspelt field may
 * hold a key.
 */

import type { z } from "zod";
import { REDACTED, type Redaction } from "../../trace/redact.ts";
import { shownConfig } from "../schema/shown-config.ts";
import type { Path } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";
import { findParts, type Part } from "./parts.ts";

/** `parts` and `schema` are those of all policies: they are made once, since there may be hundreds of documents. */
export function shownSpec(
  spec: unknown,
  { parts, schema }: { readonly parts: readonly Part[]; readonly schema: z.ZodType },
  redaction: Redaction,
): unknown {
  if (!isObject(spec)) return {};
  const { found, unknown } = findParts(spec, parts);
  const hidden = [
    ...unknown.map(({ path }) => path),
    ...found
      .filter(({ part, value }) => part.isSecurity && !part.schema.safeParse(value).success)
      .map(({ path }) => path),
  ];
  return hidden.reduce<unknown>((shown, path) => without(shown, path.slice(1)), shownConfig(schema, spec, redaction));
}

/** A copy in which the value at the path reads redacted. */
function without(value: unknown, [step, ...rest]: Path): unknown {
  if (step === undefined) return REDACTED;
  return isObject(value) ? { ...value, [step]: without(value[step], rest) } : value;
}
