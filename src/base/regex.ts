/**
 * Regular expressions of the configuration, matched in linear time (RE2 syntax: no look-around, no back
 * references), so that no path or header can make the process hang.
 */
import { RE2JS } from "@bufbuild/re2";

export interface LinearRegex {
  test(text: string): boolean;
}

/** Throws an Error whose message says what is wrong with the expression. */
export function linearRegex(source: string): LinearRegex {
  const compiled = RE2JS.compile(source);
  return { test: (text) => compiled.test(text) };
}
