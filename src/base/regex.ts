/**
 * Compiles regular expressions of the configuration and of expressions, which match in linear time (RE2 syntax, without look-around and back
 * references).
 */
import { createRequire } from "node:module";
import type { RE2JS } from "@bufbuild/re2";
import { onDemand } from "./on-demand.ts";
import { InputError, type PeerInput } from "./peer-inputs.ts";

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./re2-library.ts")>(() => require("./re2-library.js"));

export interface LinearRegex {
  test(text: string): boolean;
}

/** Throws an Error that describes the problem with the expression. */
export function compileRe2(input: PeerInput<"regular expression">, source: string): RE2JS {
  if (source.length > input.maxBytes) throw InputError.tooLarge(input);
  return library().RE2JS.compile(source);
}

/** Throws an Error that describes the problem with the expression. */
export function linearRegex(input: PeerInput<"regular expression">, source: string): LinearRegex {
  const compiled = compileRe2(input, source);
  return { test: (text) => compiled.test(text) };
}
