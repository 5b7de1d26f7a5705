/**
 * Checks the code against the import rule, the I/O owners and the form of files, and the checker against wrong code.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";
import { type InputId, PEER_INPUTS } from "../src/base/peer-inputs.ts";
import {
  brokenRules,
  LAYERS,
  repeatedCode,
  type SourceFile,
  SUBFOLDERS,
  sleepingTests,
} from "./support/architecture.ts";

const root = process.cwd();

function sourceFiles(folder = "src"): SourceFile[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .map((path) => ({ path: relative(root, path), text: readFileSync(path, "utf8") }));
}

test("the code keeps the rules", () => {
  const files = sourceFiles();
  assert.ok(files.length > 100, "the sources were found");
  assert.deepEqual(brokenRules(files), []);
});

test("no ten lines of code occur twice", () => {
  assert.deepEqual(repeatedCode(sourceFiles().filter(({ path }) => !/\.test\.tsx?$/.test(path))), []);
});

test("the checker finds repeated code, but not repeated imports and comments", () => {
  const lines = (count: number): string => Array.from({ length: count }, (_, i) => `call(${i});\n`).join("");
  const imports = `import {\n${Array.from({ length: 12 }, (_, i) => `  name${i},\n`).join("")}} from "./names.ts";\n`;
  const check = (a: string, b: string): string[] =>
    repeatedCode([
      { path: "src/a.ts", text: a },
      { path: "src/b.ts", text: b },
    ]);
  assert.deepEqual(check(lines(10), `\n// A comment.\n${lines(10)}`), ["src/b.ts:3 repeats src/a.ts:1"]);
  assert.deepEqual(check(lines(9), lines(9)), []);
  assert.deepEqual(check(imports, imports), []);
});

/** Libraries read these inputs before the gateway can limit them. */
const READ_BY_LIBRARIES: Partial<Record<InputId, string>> = {
  "file/history-database": "SQLite reads its own file.",
  "postgres/row": "The driver reads rows of a database that the operator runs.",
  "otlp-collector/response": "The OpenTelemetry exporter has a fixed limit of 4 MiB.",
  "upgraded-process/message": "Node deserializes the messages between the processes of one gateway.",
};

test("every input of the list has a reader", () => {
  const read = new Set(
    sourceFiles()
      .filter(({ path }) => !/\.test\.tsx?$/.test(path))
      .flatMap(({ text }) => [...text.matchAll(/\bpeerInput\(\s*"([^"]+)"/g)].map(([, id]) => id)),
  );
  const unread = PEER_INPUTS.map(({ id }) => id).filter((id) => !read.has(id));
  assert.deepEqual(unread.sort(), Object.keys(READ_BY_LIBRARIES).sort());
});

test("no test sleeps", () => {
  const files = [...sourceFiles().filter(({ path }) => /\.test\.tsx?$/.test(path)), ...sourceFiles("test")];
  assert.ok(files.length > 400, "the tests were found");
  assert.deepEqual(sleepingTests(files), []);
});

const SLEEPING = [
  "await new Promise((resolve) => setTimeout(resolve, 100));\n",
  "const sleep = (ms: number) => new Promise<void>((done) => void setTimeout(done, ms));\n",
  'import { setTimeout as pause } from "node:timers/promises";\n',
];
for (const text of SLEEPING) {
  test(`the checker finds a test that sleeps: ${text.trim()}`, () => {
    assert.equal(sleepingTests([{ path: "test/scenario/a.test.ts", text }]).length, 1);
  });
}

test("the checker allows a time limit and polling helpers", () => {
  const text = "const limit = setTimeout(() => reject(new Error()), 60_000);\n";
  assert.deepEqual(sleepingTests([{ path: "test/scenario/a.test.ts", text }]), []);
  assert.deepEqual(sleepingTests([{ path: "test/support/eventually.ts", text: SLEEPING[0] ?? "" }]), []);
});

test("ARCHITECTURE.md lists the subfolders in their order", () => {
  const page = readFileSync(join(root, "ARCHITECTURE.md"), "utf8");
  for (const [folder, order] of Object.entries(SUBFOLDERS))
    assert.ok(page.includes(`| \`${folder}\` | ${order.join(" < ")} |`), `${folder}: ${order.join(" < ")}`);
  const layers = LAYERS.map((layer) => layer.join(" = ")).join(" < ");
  assert.ok(page.includes(layers), layers);
});

for (const page of ["ARCHITECTURE.md", "docs/internals/request-walkthroughs.md"])
  test(`every path that ${page} names exists`, () => {
    const text = readFileSync(join(root, page), "utf8");
    const named = [...text.matchAll(/`(src\/[\w./-]+)`/g)].map(([, path]) => path as string);
    assert.ok(named.length > 20, "the paths were found");
    assert.deepEqual(
      named.filter((path) => !existsSync(join(root, path))),
      [],
    );
  });

const HEADER = "/**\n * What it is.\n */\n";
const wrong: [name: string, path: string, text: string][] = [
  ["a layer that imports one above it", "src/core/a.ts", 'import { b } from "../pipeline/b.ts";\n'],
  ["a type that comes from above", "src/base/a.ts", 'import type { B } from "../core/b.ts";\n'],
  ["a layer that imports a sibling", "src/identity/a.ts", 'import { b } from "../mcp/b.ts";\n'],
  ["a lazy import from above", "src/core/a.ts", 'const b = await import("../config/b.ts");\n'],
  ["a policy that imports another", "src/policies/one/policy.ts", 'import { two } from "../two/policy.ts";\n'],
  ["gwctl that imports the gateway", "src/cli/a.ts", 'import { b } from "../core/b.ts";\n'],
  ["gwctl that loads more than shared types at start", "src/cli/a.ts", 'import { b } from "../config/b.ts";\n'],
  ["the gateway that imports gwctl", "src/app/app.ts", 'import { b } from "../cli/b.ts";\n'],
  ["code that imports a test's", "src/core/a.ts", 'import { b } from "../../test/support/b.ts";\n'],
  ["a second HTTP server", "src/core/a.ts", 'import { createServer } from "node:http";\n'],
  ["a second listener", "src/core/a.ts", 'import { createServer } from "node:net";\n'],
  ["a host in another canonical form", "src/core/a.ts", "const name = request.host.toLowerCase();\n"],
  ["an address without its brackets", "src/core/a.ts", 'const name = text.replace(/^\\[|\\]$/g, "");\n'],
  ["an address without its mapping", "src/core/a.ts", 'const peer = text.startsWith("::ffff:");\n'],
  ["a child process elsewhere", "src/core/a.ts", 'import { spawn } from "node:child_process";\n'],
  ["a connection elsewhere", "src/core/a.ts", 'import { connect } from "node:net";\n'],
  ["a TLS connection elsewhere", "src/core/a.ts", 'import { type TLSSocket, connect as open } from "node:tls";\n'],
  ["an HTTP/2 connection elsewhere", "src/core/a.ts", 'import { connect } from "node:http2";\n'],
  ["a socket elsewhere", "src/core/a.ts", 'import { isIP, Socket } from "node:net";\n'],
  ["a whole network module elsewhere", "src/core/a.ts", 'import * as net from "node:net";\n'],
  ["a network module that is loaded later", "src/core/a.ts", 'const tls = await import("node:tls");\n'],
  ["a gRPC channel elsewhere", "src/core/a.ts", "const client = new grpc.Client(host, credentials);\n"],
  ["gRPC credentials elsewhere", "src/core/a.ts", "const a = grpc.credentials.createInsecure();\n"],
  ["a request of Node elsewhere", "src/core/a.ts", 'import { request } from "node:https";\n'],
  ["a client of Redis elsewhere", "src/core/a.ts", 'import { Redis } from "ioredis";\n'],
  ["a client of PostgreSQL elsewhere", "src/core/a.ts", 'const pg = await import("pg");\n'],
  ["connections without a guard", "src/http/h1/connection.ts", 'import { connect } from "node:net";\n'],
  ["the JSON parser elsewhere", "src/core/a.ts", "const value = texts.map(JSON.parse);\n"],
  ["the environment elsewhere", "src/core/a.ts", "const a = process.env.HOME;\n"],
  ["the client library elsewhere", "src/core/a.ts", 'import { fetch } from "undici";\n'],
  ["the time of day elsewhere", "src/core/a.ts", "const now = Date.now();\n"],
  ["a timer elsewhere", "src/core/a.ts", "setTimeout(() => undefined, 1);\n"],
  ["a list of hop-by-hop headers elsewhere", "src/core/a.ts", 'const A = ["te", "host", "upgrade", "trailer"];\n'],
  ["a name of the hop-by-hop table elsewhere", "src/core/a.ts", 'if (name === "proxy-connection") drop();\n'],
  ["a side table of requests", "src/core/a.ts", "const answers = new WeakMap<Exchange, string>();\n"],
  ["a side table of calls", "src/core/a.ts", "const answers: Map<LlmCall, string> = new Map();\n"],
  ["a file named after nothing", "src/core/utils.ts", ""],
  ["a file in camelCase", "src/core/myFile.ts", ""],
  ["a subfolder that imports one above it", "src/mcp/protocol/a.ts", 'import { b } from "../client-side/b.ts";\n'],
  ["a type that comes from a subfolder above", "src/http/a.ts", 'import type { B } from "./h1/b.ts";\n'],
  ["a subfolder that imports the files of its folder", "src/mcp/tools/a.ts", 'import { b } from "../hub.ts";\n'],
  ["a subfolder that is not listed", "src/mcp/somewhere/a.ts", ""],
  ["a default export", "src/core/a.ts", "export default 1;\n"],
];
for (const [name, path, text] of wrong) {
  test(`the checker finds ${name}`, () => {
    assert.equal(brokenRules([{ path, text: HEADER + text }]).length, 1);
  });
}

test("the checker finds a file without a header", () => {
  assert.deepEqual(brokenRules([{ path: "src/core/a.ts", text: "export const a = 1;\n" }]), [
    "src/core/a.ts: has no header comment",
  ]);
});

const round: [name: string, forth: string, back: string][] = [
  ["two files that need each other", 'import { b } from "./b.ts";\n', 'import { a } from "./a.ts";\n'],
  ["a type that goes back", 'import { b } from "./b.ts";\n', 'import type { A } from "./a.ts";\n'],
  ["a lazy way back", 'import { b } from "./b.ts";\n', 'const a = await import("./a.ts");\n'],
];
for (const [name, forth, back] of round) {
  test(`the checker finds ${name}`, () => {
    const files = [
      { path: "src/core/a.ts", text: HEADER + forth },
      { path: "src/core/b.ts", text: HEADER + back },
    ];
    assert.deepEqual(brokenRules(files), ["an import cycle: src/core/a.ts → src/core/b.ts → src/core/a.ts"]);
  });
}

test("the checker finds a cycle of three once, and not the file that leads to it", () => {
  const imports = { start: "a", a: "b", b: "c", c: "a" };
  const files = Object.entries(imports).map(([name, target]) => ({
    path: `src/core/${name}.ts`,
    text: `${HEADER}import { x } from "./${target}.ts";\n`,
  }));
  assert.deepEqual(brokenRules(files), [
    "an import cycle: src/core/a.ts → src/core/b.ts → src/core/c.ts → src/core/a.ts",
  ]);
});

const right: [name: string, path: string, text: string][] = [
  ["an import from below", "src/pipeline/a.ts", 'import { b } from "../core/b.ts";\n'],
  ["an import from a subfolder below", "src/mcp/client-side/a.ts", 'import { b } from "../protocol/b.ts";\n'],
  ["an import of the same subfolder", "src/mcp/client-side/a.ts", 'import { b } from "./b.ts";\n'],
  ["files of the folder that import its subfolders", "src/mcp/hub.ts", 'import { b } from "./client-side/b.ts";\n'],
  ["a subfolder of a folder below", "src/mcp/protocol/a.ts", 'import { b } from "../../http/h1/b.ts";\n'],
  ["an import from the same folder", "src/core/a.ts", 'import { b } from "./b.ts";\n'],
  [
    "gwctl's shared types",
    "src/cli/a.ts",
    'import { p } from "../admin/server/paths.ts";\nimport type { E } from "../record/trace/record.ts";\n',
  ],
  ["gwctl's login check", "src/cli/a.ts", 'const b = await import("../config/b.ts");\n'],
  ["an I/O module in a comment", "src/core/a.ts", "// never process.env, never Date.now()\n"],
  ["two hop-by-hop headers", "src/core/a.ts", 'const A = new Set(["connection", "upgrade", "x"]);\n'],
  ["writing JSON", "src/core/a.ts", "const text = JSON.stringify(value);\n"],
  ["a date that is given", "src/core/a.ts", "const d = new Date(0);\n"],
];
for (const [name, path, text] of right) {
  test(`the checker allows ${name}`, () => {
    assert.deepEqual(brokenRules([{ path, text: HEADER + text }]), []);
  });
}
