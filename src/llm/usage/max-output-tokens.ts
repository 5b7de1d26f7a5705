/**
 * The most output that a request lets a model write, in whichever dialect it says so, for limits that reserve it.
 * Where several members say it, the largest counts: which one the provider goes by is its own affair. A request for
 * several answers may get each of them in full.
 */
import { finish, type Steps } from "../../base/turns.ts";
import { parseValue } from "../../json/json.ts";
import { JsonScanner, jsonKeysOfAnyCase } from "../../json/json-scanner.ts";

/** Chat, Responses, Messages and older completions; Gemini; Bedrock's Converse, and its models' own bodies. */
const MAXIMA: ReadonlySet<string> = new Set([
  ...["max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens"],
  ...["max_tokens_to_sample", "max_new_tokens", "max_gen_len"],
  ...["generationConfig.maxOutputTokens", "generation_config.max_output_tokens"],
  ...["inferenceConfig.maxTokens", "inferenceConfig.max_new_tokens", "textGenerationConfig.maxTokenCount"],
]);
const COUNTS: ReadonlySet<string> = new Set(["n", "best_of", "generationConfig.candidateCount"]);
const KEYS = jsonKeysOfAnyCase(...MAXIMA, ...COUNTS);
/** A number is short; what is longer is none. */
const MAX_NUMBER_BYTES = 32;
/** More than any model writes: a larger number counts as this much. */
const MAX_OUTPUT_TOKENS = 1_000_000_000;

/** About 0.5 ms. */
const STEP_BYTES = 64 * 1024;

/** undefined if the request does not say. */
export function outputMaximum(bytes: Buffer): number | undefined {
  return finish(outputMaximumSteps(bytes));
}

/** The same in steps. */
export function* outputMaximumSteps(bytes: Buffer): Steps<number | undefined> {
  let maximum: number | undefined;
  let answers = 1;
  const scanner = new JsonScanner({
    keys: KEYS,
    maxValueBytes: MAX_NUMBER_BYTES,
    maxDepth: Number.MAX_SAFE_INTEGER,
    value(key, _span, valueBytes) {
      const count = countOf(valueBytes && parseValue(valueBytes));
      if (count === undefined) return;
      if (COUNTS.has(key)) answers = Math.max(answers, count);
      else maximum = Math.max(maximum ?? 0, count);
    },
  });
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    scanner.push(bytes.subarray(from, from + STEP_BYTES));
  }
  return maximum === undefined ? undefined : Math.min(MAX_OUTPUT_TOKENS, maximum * answers);
}

/** Some servers take numbers as strings. A negative one means no limit to those that know it, so it says nothing. */
function countOf(value: unknown): number | undefined {
  const count = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof count === "number" && count >= 0 ? Math.ceil(Math.min(count, MAX_OUTPUT_TOKENS)) : undefined;
}
