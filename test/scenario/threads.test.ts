import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { backendFor } from "../support/scenario.ts";
import { HELLO_ROUTE, sendMany, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;
const newer = node ?? "";

const LIMITED = `
  - gateways: [main]
    name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    policies:
      rateLimit: { local: [{ requests: 100, unit: Hours }] }
      directResponse: { status: 200, body: "ok" }
`;

test("2,000 requests to 4 threads: a limit of 100 admits exactly 100, and every view tells one story", {
  skip,
}, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(4, HELLO_ROUTE + LIMITED), newer);
  const { statuses } = await sendMany(`${gateway.url}/limited`, 2_000, 64);
  assert.deepEqual(statuses, { 200: 100, 429: 1_900 });

  const metrics = await gateway.admin("/metrics");
  const counted = [...metrics.matchAll(/^gateway_requests_total\{.*route="limited".*\} (\d+)$/gm)];
  assert.equal(
    counted.reduce((sum, [, count]) => sum + Number(count), 0),
    2_000,
  );
  assert.match(metrics, /^gateway_rate_limit_refused_total\{owner="route limited",type="requests"\} 1900$/m);

  const { rules } = await gateway.json<{ rules: { refusals: number; buckets: object[] }[] }>("/debug/limits");
  assert.equal(rules.length, 1);
  assert.equal(rules[0]?.refusals, 1_900);
  assert.equal(rules[0]?.buckets.length, 1);

  const recent = await gateway.json<{ requests: { seq: number; id: string }[] }>("/debug/requests?limit=500");
  assert.deepEqual(
    recent.requests.map(({ seq }) => seq),
    Array.from({ length: 500 }, (_, i) => 1_999 - i),
  );
  const found = await gateway.json<{ requests: object[] }>(`/debug/requests?id=${recent.requests[7]?.id}`);
  assert.equal(found.requests.length, 1);

  const { tasks } = await gateway.json<{ tasks: { kind: string; name: string }[] }>("/debug/tasks");
  assert.equal(tasks.filter(({ kind }) => kind === "listener").length, 1);
  const memory = await gateway.json<{ threads: object[] }>("/memory");
  assert.equal(memory.threads.length, 4);
  const heap = await fetch(`${gateway.adminUrl}/debug/pprof/heap`);
  assert.ok([200, 501].includes(heap.status), `${heap.status}`);
  assert.equal((await fetch(`${gateway.adminUrl}/healthz/ready`)).status, 200);
});

test("metrics have each thread's heap and delays, and counters do not fall when a thread dies", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE), newer);
  await sendMany(`${gateway.url}/hello`, 200, 40);
  const counted = async (): Promise<number> =>
    Number(/^gateway_requests_total\{.*route="hello".*\} (\d+)$/m.exec(await gateway.admin("/metrics"))?.[1]);
  assert.equal(await counted(), 200);
  const metrics = await gateway.admin("/metrics");
  for (const name of ["nodejs_heap_used_bytes{", 'nodejs_eventloop_delay_seconds{quantile="0.99",']) {
    const threads = [...metrics.matchAll(new RegExp(`^${name.replace("{", "\\{")}thread="(\\w+)"`, "gm"))];
    assert.deepEqual(threads.map(([, thread]) => thread).sort(), ["1", "2", "main"], name);
  }
  assert.match(metrics, /^process_resident_memory_bytes \d+$/m);
  gateway.process.child.kill("SIGWINCH");
  await gateway.process.logged("worker thread replaced");
  assert.equal(await counted(), 200);
});

test("one gateway with two threads", { skip }, async (t) => {
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE), newer);

  await t.test("they share 400 connections no worse than 60:40, and each keeps its own", async (t) => {
    const sockets: Socket[] = [];
    t.after(() => {
      for (const socket of sockets) socket.destroy();
    });
    const { port } = new URL(gateway.url);
    for (let i = 0; i < 400; i++) {
      const socket = connect(Number(port), "127.0.0.1");
      sockets.push(socket);
      await once(socket, "connect");
    }
    // Answered once, so that each is surely accepted.
    await Promise.all(
      sockets.map(async (socket) => {
        socket.write("GET /hello HTTP/1.1\r\nhost: x\r\n\r\n");
        await once(socket, "data");
      }),
    );
    const { threads } = await gateway.json<{ threads: { connections: number }[] }>("/memory");
    const [one = 0, other = 0] = threads.map(({ connections }) => connections);
    assert.equal(one + other, 400);
    assert.ok(Math.max(one, other) <= 240, `${one}:${other}`);
  });

  await t.test("a trace of 3 requests gets 3, whichever threads they meet", async () => {
    const trace = await fetch(`${gateway.adminUrl}/debug/trace?count=3`);
    const text = trace.text();
    // The head of the answer comes when all threads wait.
    await sendMany(`${gateway.url}/hello`, 40, 20);
    const types = [...(await text).matchAll(/"type":"(requestStarted|requestFinished)"/g)].map(([, type]) => type);
    assert.equal(types.filter((type) => type === "requestStarted").length, 3);
    assert.equal(types.filter((type) => type === "requestFinished").length, 3);
  });

  await t.test("a stop lets requests end in all threads, and the process ends", async () => {
    await sendMany(`${gateway.url}/hello`, 30, 10);
    gateway.process.child.kill("SIGTERM");
    assert.equal((await gateway.process.exited).code, 0);
  });
});

test("two threads decide once about a canary, from what both counted", { skip }, async (t) => {
  const bad = await backendFor(t, (_, response) => response.writeHead(503).end());
  const good = await backendFor(t, (_, response) => response.end("old"));
  const route = `
  - gateways: [main]
    name: trial
    matches: [{ path: { pathPrefix: /trial } }]
    backends:
      - { host: "${good.host}" }
      - { host: "${bad.host}", canary: { share: 100, minRequests: 100, maxErrors: 50 } }
`;
  const gateway = await startThreaded(t, threadedConfig(2, route), newer);
  const { statuses } = await sendMany(`${gateway.url}/trial`, 400, 8);
  // Those that were on their way when it was decided are the only ones beyond.
  const failed = statuses[503] ?? 0;
  assert.ok(failed >= 100 && failed <= 108, JSON.stringify(statuses));
  const metrics = await gateway.admin("/metrics");
  assert.match(metrics, /^gateway_canary_withdrawn_total\{backend="[^"]+"\} 1$/m);
  const dump = await gateway.json<{ backends: { canary?: { state: string; reason: string } }[] }>("/config_dump");
  const canary = dump.backends.find((backend) => backend.canary)?.canary;
  assert.deepEqual([canary?.state, canary?.reason], ["withdrawn", "100 of 100 requests failed"]);
});
