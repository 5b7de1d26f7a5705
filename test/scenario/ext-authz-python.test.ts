/**
 * `extAuthz` with a service that uses the gRPC implementation of another language: Python's grpcio. Set `GRPC_PYTHON` to
 * the interpreter of an environment with the packages grpcio and grpcio-tools.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const python = process.env.GRPC_PYTHON ?? "python3";
const hasGrpc = spawnSync(python, ["-c", "import grpc, grpc_tools"]).status === 0;

test("a service in Python denies with its own response, and sets headers on allowed requests", {
  skip: hasGrpc ? false : "set GRPC_PYTHON to a Python with grpcio and grpcio-tools",
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-ext-authz-"));
  const child = spawn(python, ["checker.py", folder], {
    cwd: resolve("test/support/ext-authz"),
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
  });
  const ended = once(child, "close");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const [port] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { extAuthz: { host: "127.0.0.1:${port}", headers: [x-token], accept: [x-user] } }
    backends: [{ host: "${backend.host}" }]
`,
  );
  const denied = await fetch(`${gateway.url()}/a`, { headers: { "x-token": "wrong" } });
  assert.deepEqual([denied.status, denied.headers.get("x-reason")], [402, "token"]);
  assert.equal(await denied.text(), "pay first");
  assert.equal(backend.received.length, 0);
  const allowed = await fetch(`${gateway.url()}/a?b=1`, { headers: { "x-token": "right", "x-user": "forged" } });
  await allowed.arrayBuffer();
  assert.equal(allowed.status, 200);
  assert.equal(backend.received[0]?.headers["x-user"], "GET /a?b=1");
});
