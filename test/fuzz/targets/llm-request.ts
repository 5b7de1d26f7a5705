/**
 * What is read of an LLM request before it goes on, and the changes that are made in place or on its skeleton: model and
 * stream are those that JSON.parse sees, what is ambiguous is refused, and what was not changed is still there.
 */

import { peerInput } from "../../../src/base/peer-inputs.ts";
import { spliceBytes } from "../../../src/json/json-scanner.ts";
import { readSkeleton } from "../../../src/json/skeleton.ts";
import { scanRequest } from "../../../src/llm/request/read-request.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed, randomObject } from "../json.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const TREE = peerInput("client/llm-request-tree").upTo(1024 * 1024);

const NAMES = ["model", "stream", "stream_options", "messages", "content", "url", "x", ""];
const NONCE = "7f3a";

function generate(random: Random): Buffer {
  let text = randomObject(random, { names: NAMES, maxDepth: 3, brokenOneIn: 300 });
  if (random.oneIn(3)) text = text.replace("{", `{"model":"gpt-4o"${text.trim() === "{}" ? "" : ","}`);
  if (random.oneIn(400)) {
    const data = "QUJD".repeat(4_096 + random.int(3));
    const prefix = random.pick(["", "data:image/png;base64,", "data:,", "\\u0041", "@blob-7f3a-0@"]);
    text = text.replace(
      "{",
      `{"url":"${prefix}${data}${random.pick(["", "=", "==", "\\n"])}","y":"@blob-7f3a-0@"${text.trim() === "{}" ? "" : ","}`,
    );
  }
  return Buffer.from(text);
}

function namesAtTop(text: string, name: string): number {
  let count = 0;
  let depth = 0;
  for (const [token, colon] of text.matchAll(/(?:"(?:[^"\\]|\\.)*"(\s*:)?)|[{}[\]]/g)) {
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") depth -= 1;
    else if (depth === 1 && colon !== undefined && parsed(token.slice(0, -colon.length))?.value === name) count += 1;
  }
  return count;
}

function checkSkeleton(bytes: Buffer, value: Record<string, unknown>): void {
  const skeleton = readSkeleton(TREE, bytes, NONCE);
  expect(skeleton !== "not JSON" && !("tooLarge" in skeleton), `no skeleton: ${JSON.stringify(skeleton)}`);
  // A client cannot know the nonce; here a case may have written the mark itself.
  if (bytes.includes(`@blob-${NONCE}-`)) return;
  const written = Buffer.concat(skeleton.write(skeleton.value)).toString("utf8");
  expectSame(parsed(written)?.value, parsed(JSON.stringify(value))?.value, "written again");
}

export const llmRequest = defineTarget<Buffer>({
  name: "llm-request",
  seeds: [
    '{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}',
    '{ "stream" : false , "stream_options":{"include_usage":true}, "model":"a" }',
    '{"model":"a","m\\u006fdel":"b"}',
    "{}",
  ].map((text) => Buffer.from(text)),
  smokeCases: 5_000,
  generate,
  run(bytes) {
    const result = scanRequest(bytes);
    const text = bytes.toString("utf8");
    const json = parsed(text);
    if (!result.ok) {
      if (json !== undefined && isRecord(json.value) && Buffer.from(text).equals(bytes))
        expect(
          /more than one|must be|must not|deeply|Unicode|case/.test(result.reason),
          `valid JSON was refused: ${result.reason}`,
        );
      return `refused: ${result.reason.replace(/\d+/, "n")}`;
    }
    const { model, stream, modelSpan, bodyStart, isEmpty } = result.scan;
    expect(bytes[bodyStart - 1] === 123, "the place to insert is not behind the brace");
    if (json === undefined || !isRecord(json.value)) return "accepted without being JSON";
    expectSame(model ?? null, json.value.model ?? null, "the model");
    expectSame(stream ?? null, json.value.stream ?? null, "the stream flag");
    for (const name of ["model", "stream", "stream_options"])
      expect(namesAtTop(text, name) <= 1, `${name} stands twice and was accepted`);
    expectSame(isEmpty, Object.keys(json.value).length === 0, "whether it is empty");

    const inserted = `"z9":1${isEmpty ? "" : ","}`;
    const edits = [{ start: bodyStart, end: bodyStart, text: inserted }];
    if (modelSpan) edits.push({ ...modelSpan, text: '"other"' });
    const edited = parsed(Buffer.concat(spliceBytes(bytes, edits)).toString("utf8"));
    const expected = {
      ...json.value,
      z9: Object.hasOwn(json.value, "z9") ? json.value.z9 : 1,
      ...(modelSpan ? { model: "other" } : {}),
    };
    expectSame(edited?.value, expected, "after the edits");
    checkSkeleton(bytes, json.value);
    return `accepted ${typeof model} ${String(stream)} ${isEmpty} ${result.scan.streamOptionsSpan !== undefined}`;
  },
});
