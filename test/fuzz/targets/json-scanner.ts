/**
 * The scanner that finds a few members without building a tree: on valid JSON it finds what JSON.parse finds, at every
 * chunking, and what it calls whole is balanced.
 */

import { peerInput } from "../../../src/base/peer-inputs.ts";
import { JsonScanner, jsonKeys } from "../../../src/json/json-scanner.ts";
import { isRecord, parsed, randomJson, randomObject } from "../json.ts";
import { waysToArrive } from "../pieces.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const KEYS = jsonKeys("model", "usage", "stream", "message.usage");
const NAMES = ["model", "usage", "stream", "message", "messages", "m", "", "usag", "x"];
const SHAPE = { names: NAMES, maxDepth: 4, brokenOneIn: 120 };

interface Reading {
  readonly values: readonly (readonly [key: string, start: number, end: number, text: string | undefined])[];
  readonly isWhole: boolean;
  readonly invalid: string | undefined;
  readonly bodyStart: number;
}

function scan(pieces: readonly Buffer[]): Reading {
  const values: [string, number, number, string | undefined][] = [];
  const scanner = new JsonScanner({
    keys: KEYS,
    maxValueBytes: 1_000,
    input: peerInput("client/registration"),
    value: (key, { start, end }, bytes) => void values.push([key, start, end, bytes?.toString("latin1")]),
  });
  for (const piece of pieces) scanner.push(piece);
  return { values, isWhole: scanner.wellFormed, invalid: scanner.invalid, bodyStart: scanner.bodyStart };
}

/** The last of each wanted name, as JSON.parse has it. */
function wantedOf(value: Record<string, unknown>): Map<string, unknown> {
  const wanted = new Map<string, unknown>();
  for (const name of ["model", "usage", "stream"]) if (Object.hasOwn(value, name)) wanted.set(name, value[name]);
  if (isRecord(value.message) && Object.hasOwn(value.message, "usage"))
    wanted.set("message.usage", value.message.usage);
  return wanted;
}

export const jsonScanner = defineTarget<Buffer>({
  name: "json-scanner",
  seeds: [
    '{"model":"a","stream":true,"messages":[{"usage":1}]}',
    '{"message":{"usage":{"input_tokens":1}},"usage":{"x":[1,2]}}',
    '{"m\\u006fdel":"b","x":"\\\\","model":null}',
    '[{"model":"a"},{"usage":{}}]',
  ].map((text) => Buffer.from(text)),
  smokeCases: 1_500,
  generate: (random) =>
    Buffer.from(
      random.oneIn(8) ? randomJson(random, SHAPE) : randomObject(random, { ...SHAPE, maxDepth: 1 + random.int(4) }),
    ),
  run(bytes) {
    const whole = scan([bytes]);
    for (const pieces of waysToArrive(bytes)) {
      const other = scan(pieces);
      if (whole.invalid === undefined) expectSame(other, whole, "in pieces");
      else expectSame(other.invalid, whole.invalid, "in pieces, what is invalid");
    }
    if (whole.invalid !== undefined) return `invalid: ${whole.invalid.slice(0, 12)}`;
    // More of the same is nothing new: it would make the cases longer and longer.
    const count = Math.min(whole.values.length, 8);
    const json = parsed(bytes.toString("utf8"));
    if (json === undefined) return `no JSON ${whole.isWhole} ${count}`;
    if (!isRecord(json.value)) return `${Array.isArray(json.value) ? "list" : "scalar"} ${whole.isWhole}`;
    expect(whole.isWhole, "valid JSON is not whole");
    for (const [key, start, end, text] of whole.values) {
      expect(start >= 0 && end >= start && end <= bytes.length, `the place of ${key}`);
      if (text !== undefined) expectSame(bytes.toString("latin1", start, end), text, `the bytes of ${key}`);
    }
    // A member that stands twice counts with its last value, to both.
    const last = new Map(whole.values.map(([key, , , text]) => [key, text] as const));
    const wanted = wantedOf(json.value);
    const isParentRepeated =
      whole.values.filter(([key]) => key === "message.usage").length > 0 && !wanted.has("message.usage");
    if (isParentRepeated) last.delete("message.usage");
    expectSame([...last.keys()].sort(), [...wanted.keys()].sort(), "the members found");
    for (const [key, text] of last) {
      if (text === undefined || !wanted.has(key)) continue;
      expectSame(parsed(Buffer.from(text, "latin1").toString("utf8"))?.value, wanted.get(key), `the value of ${key}`);
    }
    return `object ${[...last.keys()].sort().join()} ${count}`;
  },
});
