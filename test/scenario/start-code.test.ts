import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const dist = fileURLToPath(new URL("../../../dist/", import.meta.url));
/** In characters. The limit exists to notice a static import of code that few configurations need. */
const MAX_CODE = 2_600_000;
/** Node takes about a millisecond per file. `scripts/start-file.mjs` lists modules that must not split the code of a start. */
const MAX_FILES = 46;

test("a start loads only code that every configuration needs", () => {
  const code = loadedAtStart();
  assert.match(code, /^\/\/ src\/app\/app\.ts$/m);
  for (const place of [
    "node_modules/@bufbuild/cel/",
    "node_modules/@bufbuild/protobuf/",
    "node_modules/@bufbuild/re2/",
    "node_modules/@opentelemetry/",
    "node_modules/jose/",
    "node_modules/oauth4webapi/",
    "src/config/documents/translate.ts",
    "src/config/import/agentgateway.ts",
    "src/kubernetes/follow-controller.ts",
    "src/llm/dialects/",
    "src/mcp/session/",
  ])
    assert.equal(code.includes(`\n// ${place}`), false, `${place} is loaded at the start`);
  assert.ok(code.length < MAX_CODE, `${code.length} characters of code are loaded at the start`);
});

test("a start loads few files", () => {
  const { size } = filesOf(runFile());
  assert.ok(size <= MAX_FILES, `${size} files are loaded at the start`);
});

test("gwctl does not load the gateway", () => {
  for (const name of ["gwctl.js", "text-width.js"])
    assert.doesNotMatch([...filesOf(name).values()].join("\n"), /^\/\/ src\/app\/app\.ts$/m);
});

test("a start does not import node:http", () => {
  // On Node 22 and later, the import would load the WebSocket and `fetch` client (scripts/lean-http.mjs).
  assert.doesNotMatch(loadedAtStart(), /^import [^"']*from "(?:node:)?http";$/m);
});

test("code on demand shares no file with an import() that can run at the same time", () => {
  // `require` fails for a file that an `import()` has not loaded completely. These end before a configuration is loaded again.
  const atStart = /^(?:cluster|telemetry)-/;
  const started = filesOf(runFile());
  const onDemand = namesIn(started, /require\d*\("\.\/([\w.-]+\.js)"\)/g);
  assert.ok(onDemand.length >= 5);
  const loaded = new Map([...started, ...onDemand.flatMap((name) => [...filesOf(name)])]);
  for (const imported of namesIn(loaded, /import\("\.\/([\w.-]+\.js)"\)/g)) {
    if (atStart.test(imported)) continue;
    const files = filesOf(imported);
    for (const name of onDemand)
      for (const file of filesOf(name).keys())
        assert.ok(started.has(file) || !files.has(file), `${name} and ${imported} share ${file}`);
  }
});

function loadedAtStart(): string {
  return [...filesOf(runFile()).values()].join("\n");
}

function runFile(): string {
  const run = readdirSync(dist).find((name) => /^run-\w+\.js$/.test(name));
  assert.ok(run !== undefined, "dist is not built");
  return run;
}

/** Returns the texts of the file and of all files that it imports statically. */
function filesOf(first: string): Map<string, string> {
  const texts = new Map<string, string>();
  const waiting = [first];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (texts.has(name)) continue;
    const text = readFileSync(join(dist, name), "utf8");
    texts.set(name, text);
    for (const [, imported] of text.matchAll(/^(?:import|export) ?(?:[^"';]*from )?"\.\/([\w.-]+\.js)";$/gm))
      waiting.push(imported as string);
  }
  return texts;
}

function namesIn(texts: ReadonlyMap<string, string>, pattern: RegExp): string[] {
  return [...texts.values()].flatMap((text) => Array.from(text.matchAll(pattern), ([, name]) => name as string));
}
