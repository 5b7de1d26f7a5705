/** `extProc` with a processor that uses the gRPC implementation of another language. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { skipWithoutGrpc, startPython } from "../support/python-grpc.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

test("a processor in Python changes headers, replaces bodies, and rejects", {
  skip: skipWithoutGrpc,
}, async (t) => {
  const line = await startPython(t, "test/support/ext-proc/processor.py");
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
