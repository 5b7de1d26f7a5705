/**
 * Resolves the variables of one evaluation, each when it is read. Only the names in the attribute table resolve.
 */
import { type CelError, type CelValue, celError } from "@bufbuild/cel";
import type { AttributeSource } from "./attribute-source.ts";
import { ATTRIBUTE_NAMES } from "./attributes.ts";
import { emptyMap, toCel } from "./values.ts";

const EMPTY = emptyMap();

export class Activation {
  /** The name is not a valid CEL identifier, so no expression can read it. */
  readonly "@source": AttributeSource;

  constructor(source: AttributeSource) {
    this["@source"] = source;
  }
}

Object.setPrototypeOf(Activation.prototype, null);
for (const name of ATTRIBUTE_NAMES) {
  Object.defineProperty(Activation.prototype, name, {
    get(this: Activation): CelValue | CelError {
      return readAttribute(this["@source"], name);
    },
  });
}

/** An absent attribute (no token, no LLM call) is an empty map: `has(jwt.sub)` is false and `jwt.sub` is an error. */
function readAttribute(source: AttributeSource, name: string): CelValue | CelError {
  try {
    const value = (source as unknown as Record<string, unknown>)[name];
    return value === undefined ? EMPTY : toCel(value);
  } catch (error) {
    return celError(error instanceof Error ? error.message : `${name} cannot be read`);
  }
}
