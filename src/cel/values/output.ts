/**
 * Converts CEL values to JSON values.
 */
import { type CelValue, isCelType, isCelUint } from "@bufbuild/cel";
import { isMessage, toJson } from "@bufbuild/protobuf";
import { isReflectMessage } from "@bufbuild/protobuf/reflect";
import { DurationSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { peerInput } from "../../base/peer-inputs.ts";
import { isCelList, isCelMap } from "./values.ts";

export type CelOutput = null | boolean | number | string | CelOutput[] | { [key: string]: CelOutput };

const MAX_OUTPUT_DEPTH = peerInput("client/expression-text").maxDepth;
export const MAX_OUTPUT_VALUES = peerInput("client/expression-text").maxItems;

/**
 * Throws if the value has no JSON form, is nested too deeply, or has too many values. A string counts as one additional
 * value per 64 characters.
 */
export function fromCel(value: CelValue, maxValues: number = MAX_OUTPUT_VALUES): CelOutput {
  let left = maxValues;

  function convert(current: CelValue, depth: number): CelOutput {
    left -= typeof current === "string" ? 1 + (current.length >>> 6) : 1;
    if (left < 0) throw new Error("the value is too large");
    if (depth > MAX_OUTPUT_DEPTH) throw new Error("the value is nested too deeply");
    switch (typeof current) {
      case "boolean":
      case "string":
        return current;
      case "bigint":
        return integer(current);
      case "number":
        // JSON cannot represent NaN or Infinity, so use the strings from the protobuf JSON mapping.
        return Number.isFinite(current) ? current : String(current);
      default:
        return current === null ? null : convertObject(current, depth);
    }
  }

  function convertObject(current: object, depth: number): CelOutput {
    if (isCelList(current)) return Array.from(current, (item) => convert(item, depth + 1));
    if (isCelMap(current)) {
      // fromEntries defines properties instead of setting them, so a key `__proto__` does not set the prototype.
      return Object.fromEntries(Array.from(current, ([key, item]) => [keyText(key), convert(item, depth + 1)]));
    }
    if (isCelUint(current)) return integer(current.value);
    if (current instanceof Uint8Array) return Buffer.from(current).toString("base64");
    if (isCelType(current)) return current.name;
    if (isReflectMessage(current)) return messageText(current.message);
    throw new Error("the value has no JSON form");
  }

  return convert(value, 0);
}

function integer(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value.toString();
}

function keyText(key: unknown): string {
  return isCelUint(key) ? key.value.toString() : String(key);
}

function messageText(message: unknown): string {
  if (isMessage(message, TimestampSchema)) return toJson(TimestampSchema, message);
  // The protobuf format has 0, 3, 6, or 9 decimals ("1.500s"), so trailing zeros are removed.
  if (isMessage(message, DurationSchema)) return toJson(DurationSchema, message).replace(/(\.\d*?)0+s$/, "$1s");
  throw new Error("the value has no JSON form");
}
