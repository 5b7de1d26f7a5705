/**
 * Recognises a provider's refusal of a prompt that is too long for the model. There is no common code for it: OpenAI has
 * one, the others say it in words.
 */
import { isMembers, parseMembers } from "../../json/json.ts";
import { errorMessage } from "./error-shape.ts";

const CODES = new Set(["context_length_exceeded", "string_above_max_length", "request_too_large"]);
const WORDS =
  /prompt is too long|input is too long|too many (?:input )?tokens|maximum context length|context (?:length|window|size)|exceeds? the maximum (?:number of (?:input )?tokens|input length|allowed number of (?:input )?tokens)|reduce the length of the (?:messages|prompt|input)|input token count|max(?:imum)?_?(?:prompt|input)_?tokens/i;

export function isContextLengthError(body: string): boolean {
  const parsed = parseMembers(body);
  const error = isMembers(parsed?.error) ? parsed.error : parsed;
  for (const name of ["code", "type"]) {
    const value = error?.[name];
    if (typeof value === "string" && CODES.has(value)) return true;
  }
  return WORDS.test(errorMessage(parsed, body));
}
