import { asObject, type Values } from "../../../../src/config/import/conversion.ts";

/** The JSON of the events of a stream. */
export function eventData(text: string): Values[] {
  return text
    .split("\n")
    .filter((line) => line.startsWith("data: ") && !line.includes("[DONE]"))
    .map((line) => asObject(JSON.parse(line.slice("data: ".length))));
}
