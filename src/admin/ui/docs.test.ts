import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { docsEndpoint, openDocsFiles } from "./docs.ts";

const CONTENTS: Record<string, string> = {
  "index.html.gz": "start",
  "llm.html.gz": "llm",
  "reference/index.html.gz": "reference",
  "assets/app.js.gz": "script",
  "secret.txt.gz": "secret",
};
const folder = {
  names: Object.keys(CONTENTS),
  read: (name: string) => gzipSync(CONTENTS[name] ?? ""),
};

async function get(path: string, files = openDocsFiles(folder)) {
  const response = await docsEndpoint(files).GET?.({
    method: "GET",
    path,
    query: new URLSearchParams(),
    body: async () => Buffer.alloc(0),
  });
  assert.ok(response && "body" in response);
  return { ...response, text: String(response.body) };
}

const pages: [path: string, text: string][] = [
  ["/docs", "start"],
  ["/docs/", "start"],
  ["/docs/llm.html", "llm"],
  ["/docs/llm", "llm"],
  ["/docs/reference/", "reference"],
  ["/docs/assets/app.js", "script"],
];
for (const [path, text] of pages) {
  test(`the documentation serves ${path}`, async () => {
    const response = await get(path);
    assert.deepEqual([response.status, response.text], [200, text]);
    assert.match(response.headers?.["content-security-policy"] ?? "", /script-src 'self';/);
  });
}

for (const path of [
  "/docs/absent",
  "/docs/secret.txt",
  "/docs/../config_dump",
  "/docs/%2e%2e/x",
  "/docs/llm.html.gz",
]) {
  test(`the documentation does not serve ${path}`, async () => assert.equal((await get(path)).status, 404));
}

test("without the documentation, the response shows the command that builds it", async () => {
  const files = openDocsFiles(undefined);
  assert.equal(files.exist, false);
  const response = await get("/docs", files);
  assert.deepEqual([response.status, response.text.includes("npm run docs")], [404, true]);
});
