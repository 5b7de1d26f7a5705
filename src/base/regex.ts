/**
 * Matches regular expressions from the configuration in linear time (RE2 syntax, without look-around and back
 * references).
 */
import { createRequire } from "node:module";
import type { RE2JS } from "@bufbuild/re2";
import { onDemand } from "./on-demand.ts";

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./re2-library.ts")>(() => require("./re2-library.js"));

export interface LinearRegex {
  test(text: string): boolean;
}

export function compileRe2(source: string): RE2JS {
  return library().RE2JS.compile(source);
}

/** Throws an Error that describes the problem with the expression. */
export function linearRegex(source: string): LinearRegex {
  const compiled = compileRe2(source);
  return { test: (text) => compiled.test(text) };
}
