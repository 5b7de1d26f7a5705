import assert from "node:assert/strict";
import { test } from "node:test";
import { hasEncodedSeparator, pathForMatching, withSeparatorsDecoded } from "./request-path.ts";

const forMatching: [sent: string, matched: string][] = [
  ["/a/b", "/a/b"],
  ["//a///b", "/a/b"],
  ["/%61dmin", "/admin"],
  ["/%41%5A%30%7e", "/AZ0~"],
  ["/a%2Fb", "/a%2Fb"],
  ["/a%20b", "/a%20b"],
  ["/%2561", "/%2561"],
];
for (const [sent, matched] of forMatching) {
  test(`${sent} is matched as ${matched}`, () => assert.equal(pathForMatching(sent), matched));
}

test("encoded separators are found in any case, and only they", () => {
  for (const path of ["/a%2fb", "/a%2Fb", "/a%5cb", "/%5C"]) assert.equal(hasEncodedSeparator(path), true, path);
  for (const path of ["/a/b", "/%20", "/2f", "/%252f"]) assert.equal(hasEncodedSeparator(path), false, path);
  assert.equal(withSeparatorsDecoded("/a%2Fb%5cc"), "/a/b/c");
});
