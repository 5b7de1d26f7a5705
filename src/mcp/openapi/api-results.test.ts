import assert from "node:assert/strict";
import { test } from "node:test";
import type { Json } from "../../../test/support/mcp/client.ts";
import { HeaderList } from "../../http/headers.ts";
import { asMembersResult } from "../protocol/json-rpc.ts";
import { resultReader } from "./api-results.ts";

const LARGE = 1024 * 1024;
const STEP_CHARS = 64 * 1024;

function convert(type: string, body: Buffer): { result: Json; steps: number } {
  const headers = HeaderList.of({ "content-type": type });
  const reader = resultReader(200, headers);
  for (let at = 0; at < body.length; at += 10_001) reader.add(body.subarray(at, at + 10_001));
  const work = reader.result();
  let steps = 1;
  let step = work.next();
  for (; step.done !== true; steps += 1) step = work.next();
  return { result: JSON.parse(asMembersResult(step.value).text).result, steps };
}

for (const [type, unit] of [
  ["application/json", '{"a":1,"b":"\\n"},'],
  ["text/plain", "a line\n"],
  ["text/plain", "é漢🙂"],
  ["application/json", "not JSON "],
] as const)
  test(`a large response with ${JSON.stringify(unit)} as ${type} is converted in small steps`, () => {
    const text =
      type === "application/json" ? `[${unit.repeat(LARGE / unit.length)}0]` : unit.repeat(LARGE / unit.length);
    const { result, steps } = convert(type, Buffer.from(text));
    assert.equal(result.content[0].text, text);
    if (unit.startsWith("{")) assert.equal(JSON.stringify(result.structuredContent), `{"result":${text}}`);
    assert.ok(steps >= text.length / STEP_CHARS, `${steps} steps`);
  });

test("images are encoded while they arrive, and other bytes are only counted", () => {
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => i % 256));
  const { content } = convert("image/png", bytes).result;
  assert.deepEqual(content, [{ type: "image", data: bytes.toString("base64"), mimeType: "image/png" }]);
  assert.match(convert("application/pdf", bytes).result.content[0].text, /returned 100000 bytes of application\/pdf/);
});

test("a text that escapes would make much longer is not shown", () => {
  const { result } = convert("text/plain", Buffer.alloc(LARGE, 1));
  assert.match(result.content[0].text, /^The API returned 1048576 control characters, which cannot be shown/);
});
