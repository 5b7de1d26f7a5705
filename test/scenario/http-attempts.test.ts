/**
 * An answer of the gateway that takes the place of a backend's while that is still arriving: the client gets it whole, the
 * backend's call is closed, and what the backend says to that changes nothing.
 */
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";

interface Behind {
  readonly gateway: TestGateway;
  /** Resolves when the backend's connection was closed before its answer was whole. */
  readonly left: Promise<void>;
}

async function behind(t: TestContext, policies: string, answer: (res: ServerResponse) => void): Promise<Behind> {
  let leave = (): void => undefined;
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const backend = createServer((req, res) => {
    req.resume();
    res.on("close", () => {
      if (!res.writableFinished) leave();
    });
    answer(res);
  });
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const { port } = backend.address() as AddressInfo;
  const gateway = await startGateway(`
config: { logging: { format: json } }
gateways: { default: { port: 0 } }
routes:
  - policies: ${policies}
    backends: [{ host: "127.0.0.1:${port}" }]
`);
  t.after(async () => {
    await gateway.close();
    backend.close();
    backend.closeAllConnections();
  });
  return { gateway, left };
}

/** Begins and does not end. */
const half = (res: ServerResponse): void => {
  res.writeHead(200, { "content-type": "text/plain", "content-length": "1000" });
  res.write("x".repeat(500));
};

test("a body that a policy writes takes the place of one that is still arriving", { timeout: 600_000 }, async (t) => {
  const { gateway, left } = await behind(t, `{ transformations: { response: { body: '"replaced"' } } }`, half);
  const response = await fetch(gateway.url(), { headers: { "x-request-id": "replaced-1" } });
  assert.equal(await response.text(), "replaced");
  await left;
  const line = JSON.parse(await gateway.logged('"id":"replaced-1"')) as Record<string, unknown>;
  assert.equal(line.status, 200);
  assert.equal(line.error, undefined);
  assert.equal(line.end, undefined);
});

test("a status that is tried again closes the answer that is still arriving, and only the last one counts", {
  timeout: 600_000,
}, async (t) => {
  let calls = 0;
  const { gateway, left } = await behind(t, `{ retry: { attempts: 2, backoff: 1ms, codes: [503] } }`, (res) => {
    calls += 1;
    if (calls === 3) res.end("third");
    else {
      res.writeHead(503, { "content-length": "1000" });
      res.write("y".repeat(10));
    }
  });
  const response = await fetch(gateway.url());
  assert.equal(await response.text(), "third");
  assert.equal(calls, 3);
  await left;
});
