/**
 * A worker thread that hangs in an endless loop is noticed and replaced, loses only its own requests, and does not block a
 * shutdown. The limits of 30 s and 2 s are real.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { HELLO_ROUTE, sendMany, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;

/** One connection, which stays open. `get` resolves with the status, or with 0 if the connection is closed. */
function keptConnection(url: string): { get(): Promise<number>; close(): void } {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined);
  return {
    get: () =>
      new Promise((resolve) => {
        socket.once("data", (chunk) => resolve(Number(/^HTTP\/1\.1 (\d{3})/.exec(chunk.toString("latin1"))?.[1])));
        socket.once("close", () => resolve(0));
        socket.write("GET /hello HTTP/1.1\r\nhost: x\r\n\r\n");
      }),
    close: () => socket.destroy(),
  };
}

test("a hung thread is replaced, the other one serves, and a reload reaches both", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE), node ?? "");
  // A connection belongs to one thread. Both threads serve some of these.
  const agents = Array.from({ length: 20 }, () => keptConnection(gateway.url));
  t.after(() => {
    for (const { close } of agents) close();
  });
  assert.deepEqual(new Set(await Promise.all(agents.map(({ get }) => get()))), new Set([200]));
  assert.match(await gateway.admin("/metrics"), /^gateway_requests_total\{.*route="hello"/m);
  gateway.process.child.kill("SIGPWR");
  await gateway.process.logged("worker thread does not respond");

  const memory = await gateway.json<{ threads: object[] }>("/memory");
  assert.equal(memory.threads.length, 1, "admin responses do not wait for the thread");
  const counted = /^gateway_requests_total\{.*route="hello".*\} (\d+)$/m.exec(await gateway.admin("/metrics"));
  assert.ok(counted !== null, "metrics do not wait for the thread either");
  const answers = agents.map(({ get }) => get());
  assert.equal(await Promise.any(answers), 200, "the other thread serves");
  writeFileSync(gateway.file, readFileSync(gateway.file, "utf8").replace('body: "one"', 'body: "two"'));

  await gateway.process.logged("worker thread hung; terminating it");
  await gateway.process.logged("worker thread replaced");
  await gateway.process.logged("configuration loaded generation=2");
  const { statuses, bodies } = await sendMany(`${gateway.url}/hello`, 60, 30);
  assert.deepEqual([statuses, [...bodies]], [{ 200: 60 }, ["two"]]);
  const served = await Promise.all(answers);
  // Connections of the hung thread are closed.
  assert.ok(served.includes(200) && served.includes(0), served.join());
  const metrics = await gateway.admin("/metrics");
  assert.match(metrics, /^gateway_threads_replaced_total\{reason="hung"\} 1$/m);
  // Requests that the hung thread served before are counted.
  const series = [...metrics.matchAll(/^gateway_requests_total\{.*route="hello".*\} (\d+)$/gm)];
  const total = series.reduce((sum, [, count]) => sum + Number(count), 0);
  assert.equal(total, 20 + served.filter((status) => status === 200).length + 60);
});

test("a hung thread is terminated soon after the drain timeout of a shutdown", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE, "  drainTimeout: 100ms"), node ?? "");
  gateway.process.child.kill("SIGPWR");
  await gateway.process.logged("worker thread does not respond");
  gateway.process.child.kill("SIGTERM");
  await gateway.process.logged("worker thread does not shut down in time; terminating it");
  assert.equal((await gateway.process.exited).code, 0);
});
