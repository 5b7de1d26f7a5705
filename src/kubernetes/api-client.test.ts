import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { openApiClient } from "./api-client.ts";

const LIMIT = peerInput("kubernetes-api/error").maxBytes;

test("a watch ends when the body of an error exceeds its limit, and closes the connection", async (t) => {
  let leave: () => void = () => undefined;
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const server = createServer((request, response) => {
    if (request.url === "/beyond") response.once("close", leave);
    response.writeHead(500, { "content-type": "application/json" });
    response.write(Buffer.alloc(LIMIT, " "));
    // One byte more, and no end.
    if (request.url === "/beyond") response.write(" ");
    else response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const credentials = { server: `http://127.0.0.1:${port}`, headers: {}, tls: {} };
  const client = openApiClient(
    { namespace: "a", credentials: async () => credentials, refused: () => undefined },
    fakeClock(),
  );
  t.after(() => {
    client.close();
    server.closeAllConnections();
    server.close();
  });
  const watched = (path: string): Promise<Error | undefined> =>
    new Promise((resolve) => void client.watch(path, { event: () => assert.fail(), end: resolve }, 60_000));
  assert.match(String(await watched("/within")), /the API server answered 500/);
  assert.match(String(await watched("/beyond")), /the API server answered 500/);
  await left;
});
