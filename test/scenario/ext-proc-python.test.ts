/**
 * `extProc` with a processor that uses the gRPC implementation of another language: Python's grpcio. Set `GRPC_PYTHON` to
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

test("a processor in Python changes headers, replaces bodies, and rejects", {
  skip: hasGrpc ? false : "set GRPC_PYTHON to a Python with grpcio and grpcio-tools",
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-ext-proc-"));
  const child = spawn(python, ["processor.py", folder], {
    cwd: resolve("test/support/ext-proc"),
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
  });
  const ended = once(child, "close");
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  const backend = await backendFor(t, async (request, response) => {
    let text = "";
    for await (const part of request) text += String(part);
    response.end(`${request.headers["x-from"]} ${text}`);
  });
  for (const mode of ["buffered", "streamed"]) {
    const gateway = await gatewayFor(
      t,
      `gateways: { default: { port: 0 } }
routes:
  - policies:
      extProc: { host: "127.0.0.1:${Number(line)}", timeout: 30s, processingMode: { requestBody: ${mode}, responseBody: ${mode} } }
    backends: [{ host: "${backend.host}" }]
`,
    );
    const response = await fetch(gateway.url(), { method: "POST", body: "secret text" });
    assert.equal(await response.text(), "python ****** text (checked)", mode);
    assert.equal(response.headers.get("x-checked"), "1");
    const rejected = await fetch(`${gateway.url()}/forbidden`);
    assert.deepEqual([rejected.status, await rejected.text()], [403, "no entry"]);
  }
});
