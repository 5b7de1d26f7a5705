/**
 * gwctl as it is shipped: bundled and split. A library in CommonJS form that is loaded lazily loses its names there,
 * which the compiled files of the other tests do not show.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const DUMP = JSON.stringify({
  listeners: [{ name: "default", port: 3000, protocol: "HTTP", routes: ["web"] }],
  routes: [{ name: "web", matches: [{ path: { pathPrefix: "/" } }], backends: [{ name: "web/backend0", weight: 1 }] }],
  policies: [{ kind: "cors", target: { route: "web" }, policy: { allowOrigins: ["*"] } }],
});
const EVENT = '{"eventStart":null,"eventEnd":1,"severity":"info","message":{"type":"requestStarted"}}\n';

let folder: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gwctl-bundle-"));
  const built = spawnSync(process.execPath, ["scripts/build.mjs", relative(ROOT, folder)], {
    cwd: ROOT,
    encoding: "utf8",
  });
  assert.equal(built.status, 0, built.stderr);
});
after(() => rmSync(folder, { recursive: true, force: true }));

const commands: [args: string[], input: string, says: RegExp][] = [
  [["version"], "", /^gwctl \d/],
  [["proxy", "--help"], "", /trace/],
  [["completion", "bash"], "", /complete -o default/],
  [["proxy", "config", "all", "--file", "-", "-o", "yaml"], DUMP, /^routes:\n {2}- name: web$/m],
  [["proxy", "config", "all", "--file", "-", "-o", "json"], DUMP, /"name": "web"/],
  [["proxy", "config", "routes", "--file", "-"], DUMP, /^web +\* +\/\*/m],
  [["proxy", "config", "routes", "--file", "-", "-o", "yaml"], DUMP, /^- name: web$/m],
  [["policies", "--file", "-", "-o", "yaml"], DUMP, /^- kind: cors$/m],
  [["policies", "--file", "-"], DUMP, /^cors +route\/web/m],
  [["proxy", "trace", "--file", "-"], EVENT, /Request Start +request started/],
];
for (const [args, input, says] of commands) {
  test(`the bundled gwctl ${args.join(" ")} works`, () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(folder, "gwctl.js"), ...args], {
      encoding: "utf8",
      input,
      cwd: folder,
      env: { PATH: process.env.PATH, HOME: folder },
    });
    assert.equal(status, 0, stderr);
    assert.match(stdout, says);
  });
}

const failures: [name: string, args: string[], says: RegExp][] = [
  ["a cluster without a kubeconfig", ["proxy", "log", "gateway/x"], /cannot read the kubeconfig|no kubeconfig/],
  ["a configuration without a login", ["auth", "check", "-f", "-"], /there is no login to check/],
  ["no gateway", ["requests", "-p", "1"], /no gateway answers/],
];
for (const [name, args, says] of failures) {
  test(`the bundled gwctl fails in one line: ${name}`, () => {
    const { status, stderr } = spawnSync(process.execPath, [join(folder, "gwctl.js"), ...args], {
      encoding: "utf8",
      input: "gateways: {}\n",
      env: { PATH: process.env.PATH, HOME: folder },
    });
    assert.equal(status, 1, stderr);
    assert.match(stderr, says);
    assert.equal(stderr.trim().split("\n").length, 1, stderr);
  });
}
