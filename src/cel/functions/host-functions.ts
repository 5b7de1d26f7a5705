/**
 * Defines the internal functions that rewrite.ts adds to the tree. Their names start with `@`, which is not valid in
 * a CEL source. Some functions take a host object as the first argument, embedded with `hostNode`.
 */
import { type CelFunc, CelScalar, type CelValue, celFunc } from "@bufbuild/cel";
import { GrowingList } from "../values/values.ts";
import {
  type Budget,
  type Loop,
  payForCopy,
  payForLoop,
  payForParts,
  payForReplacements,
  payForText,
  payForValue,
  type TextCost,
} from "./budget.ts";
import { compileComputedRegex, type Regex } from "./regex.ts";

export const APPEND = "@append";
export const IS_NULL = "@isNull";
export const IS_NOTHING = "@isNothing";
export const PAY_FOR_LOOP = "@payForLoop";
export const PAY_FOR_VALUE = "@payForValue";
export const PAY_FOR_COPY = "@payForCopy";
export const PAY_FOR_TEXT = "@payForText";
export const PAY_FOR_REPLACEMENTS = "@payForReplacements";
export const PAY_FOR_PARTS = "@payForParts";
export const MATCHES = "@matches";
export const MATCHES_COMPUTED = "@matchesComputed";
export const REGEX_REPLACE = "@regexReplace";
export const REGEX_REPLACE_COMPUTED = "@regexReplaceComputed";

export interface BoundRegex {
  readonly regex: Regex;
  readonly budget: Budget;
}

const { BOOL, DYN, STRING } = CelScalar;

export const hostFunctions: CelFunc[] = [
  celFunc(APPEND, [DYN, DYN], DYN, (list, item) => GrowingList.append(list, item)),
  celFunc(IS_NULL, [DYN], BOOL, (value) => value === null),
  // Returns false for every value. If the argument is an error, the call is an error too, which `default()` detects.
  celFunc(IS_NOTHING, [DYN], BOOL, () => false),
  celFunc(PAY_FOR_LOOP, [DYN, DYN], DYN, (loop, range) => payForLoop(host<Loop>(loop), range)),
  celFunc(PAY_FOR_VALUE, [DYN, DYN], DYN, (budget, value) => payForValue(host<Budget>(budget), value)),
  celFunc(PAY_FOR_COPY, [DYN, DYN], DYN, (budget, value) => payForCopy(host<Budget>(budget), value)),
  celFunc(PAY_FOR_TEXT, [DYN, DYN], DYN, (cost, value) => payForText(host<TextCost>(cost), value)),
  celFunc(PAY_FOR_REPLACEMENTS, [DYN, DYN, DYN], DYN, (budget, text, search) =>
    payForReplacements(host<Budget>(budget), text, search),
  ),
  celFunc(PAY_FOR_REPLACEMENTS, [DYN, DYN, DYN, DYN], DYN, (budget, text, search, times) =>
    payForReplacements(host<Budget>(budget), text, search, times),
  ),
  celFunc(PAY_FOR_PARTS, [DYN, DYN, DYN], DYN, (budget, text, separator) =>
    payForParts(host<Budget>(budget), text, separator),
  ),
  celFunc(MATCHES, [DYN, STRING], BOOL, (bound, text) => {
    const { regex, budget } = host<BoundRegex>(bound);
    return regex.test(text, budget);
  }),
  celFunc(MATCHES_COMPUTED, [DYN, STRING, STRING], BOOL, (budget, text, pattern) =>
    compileComputedRegex(pattern, host<Budget>(budget)).test(text, host<Budget>(budget)),
  ),
  celFunc(REGEX_REPLACE, [DYN, STRING, STRING], STRING, (bound, text, replacement) => {
    const { regex, budget } = host<BoundRegex>(bound);
    return regex.replaceAll(text, replacement, budget);
  }),
  celFunc(REGEX_REPLACE_COMPUTED, [DYN, STRING, STRING, STRING], STRING, (budget, text, pattern, replacement) =>
    compileComputedRegex(pattern, host<Budget>(budget)).replaceAll(text, replacement, host<Budget>(budget)),
  ),
];

function host<T extends object>(value: CelValue): T {
  return value as unknown as T;
}
