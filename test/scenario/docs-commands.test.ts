/**
 * The commands of the pages for operators, run as they are written there (which page is run where is in
 * test/docs-commands.test.ts). Only ports are replaced, because another gateway may have the usual ones.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { type TestContext, test } from "node:test";
import { finish } from "../../src/base/sliced-work.ts";
import { loadConfig } from "../../src/config/load/load.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { rawClient } from "../support/mcp/client.ts";
import { docCommands, runDocCommands } from "../support/package/doc-commands.ts";
import { npmEnvironment, pack } from "../support/package/packed.ts";

const ADMIN = 'config: { adminAddr: "127.0.0.1:0" }\n';
const PLAIN = `${ADMIN}gateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ policies: { directResponse: { body: ok } } }]\n`;

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-docs-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** `gateway` and `gwctl` as installed programs. */
function programs(folder: string): Record<string, string> {
  const bin = join(folder, "bin");
  mkdirSync(bin);
  for (const name of ["gateway", "gwctl"]) {
    const file = join(bin, name);
    writeFileSync(file, `#!/bin/sh\nexec ${process.execPath} ${join(process.cwd(), "dist", `${name}.js`)} "$@"\n`);
    chmodSync(file, 0o755);
  }
  return { PATH: `${bin}:${process.env.PATH}`, HOME: folder };
}

test("README: clients use a provider without its key", async (t) => {
  const folder = folderFor(t);
  const env = { PATH: process.env.PATH ?? "", OPENAI_API_KEY: "sk-of-the-gateway" };
  const [, command = ""] = /^ +(echo 'llm: .* > config\.yaml)$/m.exec(readFileSync("README.md", "utf8")) ?? [];
  runDocCommands([command], folder, env);
  const provider = createServer((request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ choices: [], authorization: request.headers.authorization, path: request.url }));
  }).listen(0, "127.0.0.1");
  t.after(() => provider.close());
  await once(provider, "listening");
  const { port } = provider.address() as AddressInfo;
  const yaml = readFileSync(join(folder, "config.yaml"), "utf8")
    .replace("port: 4000", "port: 0")
    .replace("params: {", `params: { baseUrl: "http://127.0.0.1:${port}/v1",`);
  const gateway = startGatewayProcess(t, ["-f", "-"], { stdin: `${ADMIN}${yaml}`, env });
  const response = await fetch(`http://127.0.0.1:${await gateway.port("llm")}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "gpt-4.1-mini", messages: [{ role: "user", content: "Hello!" }] }),
  });
  const answer = (await response.json()) as { authorization: string; path: string };
  assert.equal(answer.authorization, "Bearer sk-of-the-gateway");
  assert.equal(answer.path, "/v1/chat/completions");
});

test("monitor: the metrics can be read", async (t) => {
  const gateway = startGatewayProcess(t, ["-f", "-"], { stdin: PLAIN });
  const { port } = new URL(await gateway.adminUrl());
  for (const command of docCommands("docs/monitor.md", "Metrics")) {
    const ran = spawnSync("sh", ["-c", command.replace(":15000", `:${port}`)], { encoding: "utf8" });
    assert.equal(ran.status, 0, ran.stderr);
    assert.match(ran.stdout, /^gateway_build_info\{/m);
  }
});

test("upgrade: another version is installed and takes the place of the one that runs", async (t) => {
  if (process.platform !== "linux") return t.skip("sockets are handed over on Linux only");
  const folder = folderFor(t);
  const prefix = join(folder, "prefix");
  const tarball = pack(folder);
  assert.equal(basename(tarball), "mcp-llm-gateway-0.1.0.tgz", "as the page has it");
  const [install = "", ...others] = docCommands("docs/upgrade.md", "Upgrade");
  const PATH = `${join(prefix, "bin")}:${process.env.PATH}`;
  const env = { ...npmEnvironment(folder), npm_config_prefix: prefix, PATH };
  runDocCommands([install], folder, env);
  writeFileSync(join(folder, "config.yaml"), PLAIN);
  const gateway = startGatewayProcess(t, ["-f", join(folder, "config.yaml")], {
    command: [join(prefix, "bin", "gateway")],
  });
  const port = await gateway.port();
  const ended = new Promise((resolve) => gateway.child.once("exit", resolve));
  const GWCTL_ADMIN_PORT = new URL(await gateway.adminUrl()).port;
  runDocCommands([install, ...others], folder, { ...env, GWCTL_ADMIN_PORT });
  const log = await gateway.logged("the new process serves");
  const pid = Number(/the new process serves.*?pid=(\d+)/.exec(log)?.[1]);
  t.after(() => void process.kill(pid, "SIGKILL"));
  assert.equal(await ended, 0);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
});

test("backup: a copy that was made while the gateway runs brings its sessions back", async (t) => {
  const folder = folderFor(t);
  const demo = JSON.stringify({ cmd: process.execPath, args: [join(process.cwd(), "dist", "demo-mcp-server.js")] });
  const yaml = `config: { adminAddr: "off", store: { folder: ./state } }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ backends: [{ mcp: { targets: [{ name: demo, stdio: ${demo} }] } }] }]
`;
  const file = join(folder, "config.yaml");
  writeFileSync(file, yaml);
  const first = startGatewayProcess(t, ["-f", file]);
  const client = rawClient(`http://127.0.0.1:${await first.port()}/mcp`);
  await client.initialize();
  const [save = "", ...restore] = docCommands("docs/backup.md", "Backup");
  assert.ok(restore.length > 0);
  const env = { PATH: process.env.PATH ?? "" };
  runDocCommands([save], folder, env);
  first.child.kill("SIGKILL");
  await first.exited;
  writeFileSync(join(folder, "state", "later"), "what the copy does not have");
  runDocCommands(restore, folder, env);
  const second = startGatewayProcess(t, ["-f", file]);
  const again = rawClient(`http://127.0.0.1:${await second.port()}/mcp`);
  again.sessionId = client.sessionId;
  again.version = client.version;
  assert.ok((await again.request("tools/list")).result);
});

test("security checklist: a configuration is checked strictly", (t) => {
  const folder = folderFor(t);
  const env = programs(folder);
  const commands = docCommands("docs/security-checklist.md", "Security checklist");
  writeFileSync(join(folder, "config.yaml"), PLAIN);
  runDocCommands(commands, folder, env);
  // A port that other machines reach without authentication is a warning, and therefore a failure here.
  writeFileSync(join(folder, "config.yaml"), "mcp: { port: 3000, targets: [{ name: a, stdio: { cmd: node } }] }\n");
  for (const command of commands)
    assert.equal(spawnSync("sh", ["-c", command], { cwd: folder, env, encoding: "utf8" }).status, 1);
});

test("migrate: each import writes a configuration that loads", (t) => {
  const commands = docCommands("docs/migrate.md", "Migrate");
  assert.equal(commands.length, 4);
  const samples: Readonly<Record<string, string>> = {
    "claude_desktop_config.json": "mcpServers/desktop.json",
    "commands.txt": "supergateway/stdio.txt",
    "agentgateway.yaml": "agentgateway/binds.yaml",
    "litellm.yaml": "litellm/simple.yaml",
  };
  for (const command of commands) {
    const [, input = "", output = ""] = /gwctl import (\S+) > (\S+)/.exec(command) ?? [];
    const folder = folderFor(t);
    copyFileSync(join("test/import", samples[input] ?? input), join(folder, input));
    runDocCommands([command], folder, programs(folder));
    const text = readFileSync(join(folder, output), "utf8");
    const names = [...text.matchAll(/\$\{(\w+)\}/g)].map(([, name = ""]) => [name, "value"] as const);
    const loaded = finish(loadConfig([{ file: output, text }], Object.fromEntries(names)));
    assert.ok(loaded.ok, command);
  }
});

test("the pages' own configuration of Prometheus has the rules that are in deploy/", (t) => {
  if (spawnSync("promtool", ["--version"]).error) return t.skip("there is no promtool");
  const folder = folderFor(t);
  const [, yaml = ""] =
    /```yaml\n(# prometheus\.yaml\n[\s\S]*?)```/.exec(readFileSync("docs/monitor.md", "utf8")) ?? [];
  writeFileSync(join(folder, "prometheus.yaml"), yaml);
  cpSync("deploy/prometheus/alerts.yaml", join(folder, "alerts.yaml"));
  const ran = spawnSync("promtool", ["check", "config", "prometheus.yaml"], { cwd: folder, encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr + ran.stdout);
});
