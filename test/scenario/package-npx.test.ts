/**
 * The npm package run by npx from its tarball, with nothing installed before.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { npmEnvironment, pack } from "../support/package/packed.ts";

let folder: string;
let tarball: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), "gateway-npx-"));
  tarball = pack(folder);
});
after(() => rmSync(folder, { recursive: true, force: true }));

test("npx runs a configuration from the tarball", async (t) => {
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    'config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\n' +
      "routes: [{ policies: { directResponse: { body: from the tarball } } }]\n",
  );
  // A group of its own: npx starts a shell, which starts the gateway.
  const child = spawn("npx", ["--yes", `./${basename(tarball)}`, "-f", config], {
    cwd: folder,
    env: npmEnvironment(folder),
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("close", resolve));
  t.after(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGTERM");
    await ended;
  });
  const port = await new Promise<string>((resolve, reject) => {
    let log = "";
    child.stdout.on("data", (chunk) => {
      log += String(chunk);
      const found = /listening gateway=default url=\S+:(\d+)/.exec(log)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once("close", () => reject(new Error(log)));
  });
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "from the tarball");
});
