import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { test } from "node:test";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { HELLO_ROUTE, sendMany, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;
const newer = node ?? "";

test("a reload swaps all threads or none", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE), newer);
  const written = readFileSync(gateway.file, "utf8");
  writeFileSync(gateway.file, written.replace('body: "one"', 'body: "two"'));
  await gateway.process.logged("configuration loaded generation=2");
  assert.deepEqual([...(await sendMany(`${gateway.url}/hello`, 60, 30)).bodies], ["two"]);

  const taken = createTcpServer();
  taken.listen(0, "127.0.0.1");
  await once(taken, "listening");
  t.after(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const other = `  other: { port: ${port}, address: 127.0.0.1, protocol: HTTP }\nroutes:`;
  writeFileSync(gateway.file, written.replace('body: "one"', 'body: "three"').replace("routes:", other));
  await gateway.process.logged("address is already in use");
  assert.deepEqual([...(await sendMany(`${gateway.url}/hello`, 60, 30)).bodies], ["two"]);
});

test("a second gateway does not share the port", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE), newer);
  const { port } = new URL(gateway.url);
  const second = startGatewayProcess(t, ["-f", "-"], {
    command: [newer, "dist/gateway.js"],
    stdin: threadedConfig(2, HELLO_ROUTE).replace("port: 0", `port: ${port}`),
  });
  const { code, stderr } = await second.exited;
  assert.equal(code, 1);
  assert.match(stderr, /gateways\.main\.port: cannot listen on \*:\d+: the address is already in use/);
});
