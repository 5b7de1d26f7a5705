import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { mergeProfiles } from "./merge-profiles.ts";

/** Returns a profile with one sample in one function. Its strings are "", the sample type, and the function name. */
function profile(name: string, value: number): Buffer {
  const text = (field: number, value: string | Buffer): Buffer => {
    const bytes = Buffer.from(value as string);
    return Buffer.concat([Buffer.from([(field << 3) | 2, bytes.length]), bytes]);
  };
  const number = (field: number, value: number): Buffer => Buffer.from([field << 3, value]);
  return gzipSync(
    Buffer.concat([
      text(1, Buffer.concat([number(1, 1), number(2, 1)])),
      text(2, Buffer.concat([text(1, Buffer.from([1])), text(2, Buffer.from([value]))])),
      text(4, Buffer.concat([number(1, 1), text(4, number(1, 1))])),
      text(5, Buffer.concat([number(1, 1), number(2, 2)])),
      text(6, ""),
      text(6, "count"),
      text(6, name),
      number(12, 7),
    ]),
  );
}

test("ids and strings of the second profile are shifted, samples are labeled, and the header is that of the first", async () => {
  const merged = gunzipSync(await mergeProfiles([profile("one", 3), profile("two", 5)]));
  const strings = ["", "count", "one", "thread", "", "count", "two", "thread"];
  const found: string[] = [];
  const samples: string[] = [];
  const functions: string[] = [];
  let heads = 0;
  for (let at = 0; at < merged.length; ) {
    const [key = 0] = merged.subarray(at, at + 1);
    if ((key & 7) === 0) {
      heads += 1;
      at += 2;
      continue;
    }
    const length = merged[at + 1] ?? 0;
    const bytes = merged.subarray(at + 2, at + 2 + length);
    at += 2 + length;
    if (key >> 3 === 6) found.push(String(bytes));
    if (key >> 3 === 2) samples.push(bytes.toString("hex"));
    if (key >> 3 === 5) functions.push(bytes.toString("hex"));
    if (key >> 3 === 1) heads += 1;
  }
  assert.deepEqual(found, strings);
  // Location 1 became 2. The label has the key "thread" (string 3, string 7) and the thread number as its value.
  assert.deepEqual(samples, ["0a0101120103" + "1a0408031801", "0a0102120105" + "1a0408071802"]);
  assert.deepEqual(functions, ["08011002", "08021006"]);
  assert.equal(heads, 2);
});

test("invalid profiles are an error", async () => {
  await assert.rejects(mergeProfiles([gzipSync(Buffer.from([0x12, 0x80]))]), /cut/);
  await assert.rejects(mergeProfiles([gzipSync(Buffer.from([0x0d, 1, 2, 3, 4]))]), /unknown type/);
});
