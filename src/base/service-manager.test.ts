import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProgramRun } from "./run-program.ts";
import { endsWithProcess, openServiceManager } from "./service-manager.ts";

const never = new Promise<void>(() => undefined);

function manager(answer: ProgramRun | Error) {
  const told: unknown[] = [];
  const opened = openServiceManager({
    environment: { NOTIFY_SOCKET: "/run/notify", PATH: "/bin", SECRET: "not passed on" },
    wait: () => never,
    run: async (command, args, environment) => {
      told.push([command, args, environment]);
      if (answer instanceof Error) throw answer;
      return answer;
    },
  });
  assert.ok(opened);
  return { opened, told };
}

test("without a socket nothing is notified", () => {
  for (const environment of [{}, { NOTIFY_SOCKET: "" }])
    assert.equal(openServiceManager({ environment, wait: () => never }), undefined);
});

test("systemd-notify is called with only the environment variables it needs", async () => {
  const { opened, told } = manager({ code: 0, stdout: "", stderr: "" });
  await opened.ready();
  await opened.mainProcess(4712);
  const environment = { NOTIFY_SOCKET: "/run/notify", PATH: "/bin" };
  assert.deepEqual(told, [
    ["systemd-notify", ["--ready"], environment],
    ["systemd-notify", ["MAINPID=4712"], environment],
  ]);
});

test("a failure has a reason", async () => {
  const refused = manager({ code: 1, stdout: "", stderr: "Connection refused\n" });
  await assert.rejects(refused.opened.ready(), /^Error: systemd-notify failed: Connection refused$/);
  const missing = manager(Object.assign(new Error("spawn"), { code: "ENOENT" }));
  await assert.rejects(missing.opened.mainProcess(1), /the program systemd-notify is missing/);
});

test("a unit without notifications ends with this process", () => {
  assert.match(endsWithProcess({ SYSTEMD_EXEC_PID: "7" }, 7) ?? "", /Type=notify/);
  assert.equal(endsWithProcess({ SYSTEMD_EXEC_PID: "7", NOTIFY_SOCKET: "/run/notify" }, 7), undefined);
  assert.equal(endsWithProcess({ SYSTEMD_EXEC_PID: "7" }, 8), undefined, "a child of a service, or a shell");
  assert.equal(endsWithProcess({}, 7), undefined);
});
