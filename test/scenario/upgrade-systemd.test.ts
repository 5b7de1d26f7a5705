/**
 * An upgrade under a service manager: it is told that the gateway serves and, before the old process drains, which
 * process is the gateway now. Where it cannot be told, nothing is upgraded. A program of the test stands for
 * `systemd-notify`; `npm run test:docs` does the same with a real systemd.
 */
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { eventually } from "../support/scenario.ts";

const skip = process.platform !== "linux" && "sockets are handed over on Linux only";
/** The process id is known only to the process that becomes the gateway. */
const AS_MAIN_PROCESS = ["/bin/sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh"];
const GATEWAY = join(process.cwd(), "dist", "gateway.js");

function setUp(t: TestContext, env: Record<string, string>) {
  const folder = mkdtempSync(join(tmpdir(), "upgrade-systemd-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = {
    config: { adminAddr: "127.0.0.1:0" },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [{ policies: { directResponse: { body: "ok" } } }],
  };
  writeFileSync(join(folder, "config.yaml"), JSON.stringify(config));
  const notify = join(folder, "systemd-notify");
  writeFileSync(
    notify,
    `#!/bin/sh\n[ -e ${folder}/deaf ] && { echo "Connection refused" >&2; exit 1; }\necho "$NOTIFY_SOCKET $*" >> ${folder}/told\n`,
  );
  chmodSync(notify, 0o755);
  const gateway = startGatewayProcess(t, ["-f", join(folder, "config.yaml")], {
    command: [...AS_MAIN_PROCESS, process.execPath, GATEWAY],
    env: { PATH: `${folder}:${process.env.PATH}`, ...env },
  });
  const told = (): string[] =>
    existsSync(join(folder, "told")) ? readFileSync(join(folder, "told"), "utf8").trim().split("\n") : [];
  const upgrade = async (): Promise<{ status: number; text: string; pid: string | undefined }> => {
    const response = await fetch(`${await gateway.adminUrl()}/upgrade`, { method: "POST" });
    const text = await response.text();
    const pid = /process (\d+); process/.exec(text)?.[1];
    if (pid !== undefined) t.after(() => end(Number(pid)));
    return { status: response.status, text, pid };
  };
  return { folder, gateway, told, upgrade };
}

function end(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}

test("the manager is told that the gateway serves, and which process it is after an upgrade", { skip }, async (t) => {
  const { gateway, told, upgrade } = setUp(t, { NOTIFY_SOCKET: "/run/notify" });
  const port = await gateway.port();
  await eventually("ready", () => told().length > 0);
  assert.deepEqual(told(), ["/run/notify --ready"]);
  const { status, text, pid } = await upgrade();
  assert.equal(status, 200, text);
  assert.ok(told().includes(`/run/notify MAINPID=${pid}`), told().join("\n"));
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
});

test("if the manager cannot be told of the new process, the old one continues", { skip }, async (t) => {
  const { folder, gateway, told, upgrade } = setUp(t, { NOTIFY_SOCKET: "/run/notify" });
  const port = await gateway.port();
  await eventually("ready", () => told().length > 0);
  writeFileSync(join(folder, "deaf"), "");
  const { status, text } = await upgrade();
  assert.equal(status, 500);
  assert.match(text, /continues: could not notify systemd: systemd-notify failed: Connection refused/);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
  rmSync(join(folder, "deaf"));
  assert.equal((await upgrade()).status, 200, "another try works");
});

test("a unit that cannot be told of another process is not upgraded, and the answer says how", { skip }, async (t) => {
  const { gateway, upgrade } = setUp(t, {});
  await gateway.port();
  const { status, text } = await upgrade();
  assert.equal(status, 500);
  assert.match(text, /systemd would end the new process.*set Type=notify and NotifyAccess=all/);
});

test("a manager that cannot be told that the gateway serves is named, and the gateway serves", { skip }, async (t) => {
  const { gateway } = setUp(t, { NOTIFY_SOCKET: "/run/notify", PATH: "/nowhere" });
  const port = await gateway.port();
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
});
