/**
 * Matches regular expressions from the configuration in linear time (RE2 syntax, without look-around and back
 * references).
 */
import { RE2JS } from "@bufbuild/re2";

export interface LinearRegex {
  test(text: string): boolean;
}

/** Throws an Error that describes the problem with the expression. */
export function linearRegex(source: string): LinearRegex {
  const compiled = RE2JS.compile(source);
  return { test: (text) => compiled.test(text) };
}
