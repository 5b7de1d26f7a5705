/**
 * The npm package: packed, installed from the tarball into an empty folder without a network, and run as its users run
 * it. Everything that it needs is inside; the profiler alone is optional.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { docCommands, runDocCommands } from "../support/package/doc-commands.ts";
import { demoYaml, npmEnvironment, pack } from "../support/package/packed.ts";

/** Of these, 2 MiB are the documentation, if it was built. */
const MAX_PACKAGE_BYTES = 12 * 1024 * 1024;
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};

let folder: string;
let tarball: string;
let installed: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-package-"));
  tarball = pack(folder);
  installed = join(folder, "installed");
  mkdirSync(installed);
  copyFileSync(tarball, join(installed, basename(tarball)));
  writeFileSync(join(installed, "package.json"), "{}");
  writeFileSync(join(installed, "config.yaml"), "gateways: { default: { port: 0 } }\n");
  // Installed as the page says.
  runDocCommands(docCommands("docs/install.md", "npm"), installed, npmEnvironment(folder));
});
after(() => rmSync(folder, { recursive: true, force: true }));

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<string, unknown>;
const program = (name: string): string => join(installed, "node_modules", ".bin", name);

test("the package may be published, and depends on nothing but the optional profiler", () => {
  const path = join(installed, "node_modules", String(manifest.name), "package.json");
  const packed = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  const named = Object.keys(packed).filter((member) => /dependencies/i.test(member));
  assert.deepEqual(named, ["optionalDependencies"]);
  assert.deepEqual(Object.keys(packed.optionalDependencies as object), ["@datadog/pprof"]);
  assert.deepEqual(Object.keys(packed.bin as object), ["gateway", "gwctl", manifest.name]);
  for (const member of ["private", "scripts", "overrides"]) assert.equal(packed[member], undefined, member);
  assert.equal(manifest.private, true, "the checkout cannot be published");
});

test("installed from the tarball it is one package of a few megabytes, with its licences", () => {
  const modules = join(installed, "node_modules");
  assert.deepEqual(
    readdirSync(modules).filter((name) => !name.startsWith(".")),
    [manifest.name],
  );
  const root = join(modules, String(manifest.name));
  const files = readdirSync(root, { recursive: true, encoding: "utf8" });
  const bytes = files.reduce((sum, name) => sum + statSync(join(root, name)).size, 0);
  assert.ok(bytes < MAX_PACKAGE_BYTES, `${bytes} bytes`);
  for (const name of ["LICENSE", "NOTICE", join("dist", "THIRD-PARTY-LICENSES.txt")])
    assert.ok(files.includes(name), name);
  assert.deepEqual(
    files.filter((name) => /\.map$|\.test\.|\.ts$|(?:^|\/)\.built-from$/.test(name)),
    [],
  );
});

test("every package in the bundles is named with its licence", async () => {
  const { packagePart } = (await import(pathToFileURL(join(process.cwd(), "scripts/third-party.mjs")).href)) as {
    packagePart(folder: string): string;
  };
  const text = readFileSync(
    join(installed, "node_modules", String(manifest.name), "dist/THIRD-PARTY-LICENSES.txt"),
    "utf8",
  );
  // One of each kind: with a text of its own, without one, of the terminal UI and of the web UI.
  for (const name of ["zod", "@bufbuild/cel", "@bufbuild/protobuf", "ink", "preact", "@grpc/grpc-js"])
    assert.ok(text.includes(packagePart(join(process.cwd(), "node_modules", name))), name);
});

test("the installed gateway serves the demo and the UI", async (t) => {
  const gateway = startGatewayProcess(t, ["-f", "-"], {
    command: [program("gateway")],
    stdin: demoYaml(process.execPath, [
      join(installed, "node_modules", String(manifest.name), "dist", "demo-mcp-server.js"),
    ]),
    cwd: installed,
  });
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const answer = await fetch(`http://127.0.0.1:${await gateway.port()}/mcp`, {
    method: "POST",
    headers,
    body: JSON.stringify(INITIALIZE),
  });
  assert.match(await answer.text(), /"serverInfo":\{"name":"demo"/);
  const page = await fetch(`http://127.0.0.1:${await gateway.port()}/ui`);
  assert.match(await page.text(), /<script/);
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("without the profiler a profile is refused in one line that says what to install", async (t) => {
  const yaml = 'config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0 } }\n';
  const gateway = startGatewayProcess(t, ["-f", "-"], { command: [program("gateway")], stdin: yaml, cwd: installed });
  for (const path of ["profile?seconds=1", "heap"]) {
    const answer = await fetch(`${await gateway.adminUrl()}/debug/pprof/${path}`);
    assert.equal(answer.status, 501);
    assert.match(await answer.text(), /^the profiler is not installed; install .*@datadog\/pprof.*\n$/);
  }
});

test("the installed programs answer by their names", () => {
  const version = String(manifest.version);
  const names: [command: string[], says: string][] = [
    [["gateway", "--version"], `gateway ${version}\n`],
    [["mcp-llm-gateway", "--version"], `gateway ${version}\n`],
    [["gwctl", "version"], `gwctl ${version}\n`],
    [["gateway", "ctl", "version"], `gwctl ${version}\n`],
  ];
  for (const [[name = "", ...args], says] of names)
    assert.equal(spawnSync(program(name), args, { encoding: "utf8" }).stdout, says, name);
});
