/**
 * `gwctl import` on configurations written after other programs' documentation: each result is the golden file beside it,
 * which the gateway accepts. IMPORT_GOLDEN=write writes them anew.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../src/base/clock.ts";
import { finish } from "../src/base/sliced-work.ts";
import { runGwctl } from "../src/cli/gwctl.ts";
import type { Terminal } from "../src/cli/terminal/terminal.ts";
import { loadConfig } from "../src/config/load/load.ts";

const FOLDER = join(process.cwd(), "test", "import");
const GOLDEN = ".golden.yaml";

/** Without a kind, gwctl finds it from the file. */
function imported(kind: string | undefined, file: string, stdin = ""): ReturnType<typeof run> {
  return run([...(kind === undefined ? [] : ["--from", kind]), file], stdin);
}

async function run(args: readonly string[], stdin = ""): Promise<{ code: number; out: string; err: string }> {
  let out = "";
  let err = "";
  const terminal: Terminal = {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    isInteractive: false,
    hasColor: false,
    environment: {},
    clock: systemClock,
    readStdin: () => stdin,
  };
  const code = await runGwctl(["import", ...args], terminal);
  return { code, out, err };
}

/** Every variable set: a number is a text, a port and a URL's host. */
function problemsOf(text: string): string[] {
  const values = ["1", "https://example.com"];
  const results = values.map((value) => {
    const names = [...text.matchAll(/\$\{(\w+)\}/g)].map(([, name = ""]) => [name, value] as const);
    const loaded = finish(loadConfig([{ file: "imported", text }], Object.fromEntries(names)));
    return loaded.ok ? [] : loaded.problems.map((problem) => problem.toLine());
  });
  return results.find((one) => one.length === 0) ?? results.flat();
}

const kinds = readdirSync(FOLDER);
const cases = kinds.flatMap((kind) =>
  readdirSync(join(FOLDER, kind))
    .filter((name) => !name.endsWith(GOLDEN))
    .map((name) => ({
      kind,
      file: join(FOLDER, kind, name),
      golden: join(FOLDER, kind, name.replace(/\.\w+$/, GOLDEN)),
    })),
);

test("there are at least 20 configurations of 4 kinds", () => {
  assert.equal(kinds.length, 4);
  assert.ok(cases.length >= 20, String(cases.length));
});

for (const { kind, file, golden } of cases) {
  test(`${kind}: ${file.split("/").at(-1)} becomes a valid configuration that names what was left out`, async () => {
    const { code, out, err } = await imported(kind, file);
    assert.equal(code, 0, err);
    assert.deepEqual(problemsOf(out), []);
    if (process.env.IMPORT_GOLDEN === "write") writeFileSync(golden, out);
    assert.ok(existsSync(golden), "write it with IMPORT_GOLDEN=write");
    assert.equal(out, readFileSync(golden, "utf8"));
    const found = await imported(undefined, file);
    const text = readFileSync(file, "utf8");
    if (finish(loadConfig([{ file, text }], {})).ok) assert.match(found.err, /already/);
    else assert.deepEqual(found, { code, out, err }, "the kind is found from the file");
  });
}

test("a configuration of this gateway is not imported, unless its kind is given", async () => {
  const ours = "gateways: { default: { port: 3000 } }\nroutes: [{ policies: { directResponse: { status: 200 } } }]\n";
  const found = await imported(undefined, "-", ours);
  assert.deepEqual([found.code, found.out], [1, ""]);
  assert.match(found.err, /it is a valid configuration of this gateway already; use --from to convert it/);
  assert.equal((await imported("agentgateway", "-", ours)).code, 0);
});

test("the form of earlier versions, with the kind first, still works", async () => {
  const file = join(FOLDER, "litellm", "simple.yaml");
  assert.deepEqual(await run(["litellm", file]), await imported(undefined, file));
});

const wrong: [name: string, kind: string, text: string, code: number, says: RegExp][] = [
  ["an unknown kind", "nginx", "a: 1", 2, /there is no import of nginx; there is mcpServers, agentgateway/],
  ["a list without servers", "mcpServers", "{}", 1, /there is no `mcpServers`/],
  ["no YAML", "agentgateway", "a: [", 1, /cannot import -: /],
  ["an empty file", "agentgateway", "", 1, /the file has no fields/],
  ["no models", "litellm", "model_list: []", 1, /there is no `model_list`/],
  ["no command line", "supergateway", "# nothing", 1, /there is no command line/],
  ["a command line without a server", "supergateway", "supergateway --port 1", 1, /none of --stdio/],
];
for (const [name, kind, text, code, says] of wrong)
  test(`an import fails in words: ${name}`, async () => {
    const result = await imported(kind, "-", text);
    assert.equal(result.code, code, result.out);
    assert.match(result.err, says);
    assert.equal(result.out, "");
  });

test("a file that is not there is one line", async () => {
  const { code, err } = await imported("litellm", join(FOLDER, "none.yaml"));
  assert.equal(code, 1);
  assert.match(err, /^gwctl: cannot import .*none\.yaml: ENOENT.*\n$/);
});

test("a name in the source cannot end the comment it stands in", async () => {
  const text = JSON.stringify({ mcpServers: { a: { command: "x", "b\nllm: {}\n\u001b[31m": 1 } } });
  const { out } = await imported("mcpServers", "-", text);
  assert.ok(!/^llm/m.test(out) && !out.includes("\u001b"), out);
});
