import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const dist = fileURLToPath(new URL("../../../dist/", import.meta.url));
/** In characters. The limit exists to notice a static import of code that few configurations need. */
const MAX_CODE = 2_600_000;

test("a start loads only code that every configuration needs", () => {
  const code = loadedAtStart();
  assert.match(code, /^\/\/ src\/app\/app\.ts$/m);
  for (const place of [
    "node_modules/@bufbuild/cel/",
    "node_modules/@bufbuild/protobuf/",
    "node_modules/@bufbuild/re2/",
    "node_modules/@opentelemetry/",
    "src/config/documents/translate.ts",
    "src/config/import/agentgateway.ts",
    "src/kubernetes/follow-controller.ts",
    "src/llm/dialects/",
    "src/mcp/session/",
  ])
    assert.equal(code.includes(`\n// ${place}`), false, `${place} is loaded at the start`);
  assert.ok(code.length < MAX_CODE, `${code.length} characters of code are loaded at the start`);
});

/** Returns the text of the file that runs the gateway, and of all files that it imports statically. */
function loadedAtStart(): string {
  const run = readdirSync(dist).find((name) => /^run-\w+\.js$/.test(name));
  assert.ok(run !== undefined, "dist is not built");
  const texts = new Map<string, string>();
  const waiting = [run];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (texts.has(name)) continue;
    const text = readFileSync(join(dist, name), "utf8");
    texts.set(name, text);
    for (const [, imported] of text.matchAll(/^(?:import|export) ?(?:[^"';]*from )?"\.\/([\w.-]+\.js)";$/gm))
      waiting.push(imported as string);
  }
  return [...texts.values()].join("\n");
}
