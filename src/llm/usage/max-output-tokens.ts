/**
 * Reads the maximum output of a request in any dialect. If several parameters set a maximum, the largest applies,
 * because providers differ in which parameter they use. The result covers all requested choices.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import { JsonScanner, jsonKeysOfAnyCase } from "../../json/json-scanner.ts";
import { tryReadJson } from "../../json/read-json.ts";

const BODY = peerInput("client/charged-body");
const OPTION = peerInput("client/llm-option");

const MAXIMA: ReadonlySet<string> = new Set([
  ...["max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens"],
  ...["max_tokens_to_sample", "max_new_tokens", "max_gen_len"],
  ...["generationConfig.maxOutputTokens", "generation_config.max_output_tokens"],
  ...["inferenceConfig.maxTokens", "inferenceConfig.max_new_tokens", "textGenerationConfig.maxTokenCount"],
]);
const COUNTS: ReadonlySet<string> = new Set(["n", "best_of", "generationConfig.candidateCount"]);
const KEYS = jsonKeysOfAnyCase(...MAXIMA, ...COUNTS);
/** Each name of a maximum contains `max`, unless escapes are used. Most small requests have neither. */
const COULD_NAME_MAXIMUM = /max|\\/i;
const MAX_NUMBER_BYTES = 32;
/** Larger values are clamped. */
const MAX_OUTPUT_TOKENS = 1_000_000_000;

const STEP_BYTES = 64 * 1024;

export function maxOutputTokens(bytes: Buffer): number | undefined {
  return finish(maxOutputTokensSteps(bytes));
}

export function* maxOutputTokensSteps(bytes: Buffer): Steps<number | undefined> {
  if (bytes.length <= STEP_BYTES && !COULD_NAME_MAXIMUM.test(bytes.toString("latin1"))) return undefined;
  let maximum: number | undefined;
  let choices = 1;
  const scanner = new JsonScanner({
    keys: KEYS,
    input: BODY,
    maxValueBytes: MAX_NUMBER_BYTES,
    value(key, _span, valueBytes) {
      const count = parseCount(tryReadJson(OPTION, valueBytes));
      if (count === undefined) return;
      if (COUNTS.has(key)) choices = Math.max(choices, count);
      else maximum = Math.max(maximum ?? 0, count);
    },
  });
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    scanner.push(bytes.subarray(from, from + STEP_BYTES));
  }
  return maximum === undefined ? undefined : Math.min(MAX_OUTPUT_TOKENS, maximum * choices);
}

/** Some servers accept numbers as strings. Negative values are ignored. */
function parseCount(value: unknown): number | undefined {
  const count = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof count === "number" && count >= 0 ? Math.ceil(Math.min(count, MAX_OUTPUT_TOKENS)) : undefined;
}
