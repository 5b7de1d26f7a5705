/**
 * Memory that runs out (row R36 of the threat table): requests are refused in time, and the process lives.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, behindGateway } from "../support/scenario.ts";

const HEAP_MIB = 384;

test("a heap at 90 % keeps no connection, at 95 % takes no request, and below both all is as before [R36]", async (t) => {
  const clock = fakeClock();
  let usedBytes = 10;
  const { gateway, backend } = await behindGateway(t, undefined, "", {
    clock,
    heapSize: () => ({ usedBytes, limitBytes: 100 }),
  });
  const filled = async (percent: number): Promise<void> => {
    usedBytes = percent;
    await clock.advance(250);
  };
  const ready = async (): Promise<[number, string]> => {
    const response = await fetch(`${gateway.adminUrl}/healthz/ready`);
    return [response.status, await response.text()];
  };
  const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

  const kept = openRawClient(gateway.port());
  kept.write(request);
  await kept.until("200 OK");
  await filled(90);
  assert.match(await gateway.logged("connections are not kept"), / warn .*usedMiB=0 limitMiB=0/i);
  kept.write(request);
  const last = await kept.ended();
  assert.deepEqual(last.statuses, [200, 200]);
  assert.match(last.text, /connection: close/i);
  assert.deepEqual(await ready(), [200, "ready\n"]);

  await filled(95);
  const refused = openRawClient(gateway.port());
  refused.write(request);
  const answer = await refused.ended();
  assert.deepEqual([answer.statuses, answer.errors], [[503], ["overloaded"]]);
  assert.match(answer.text, /^retry-after: 2\r$/m);
  assert.deepEqual(await ready(), [503, "not ready, pending: memory\n"]);
  assert.equal(backend.received.length, 2);
  assert.match(await gateway.logged("error=overloaded"), /status=503/);

  await filled(50);
  assert.deepEqual(await ready(), [200, "ready\n"]);
  const again = openRawClient(gateway.port());
  again.write(request);
  await again.until("200 OK");
  again.write(request);
  await eventually("the connection was kept", () => backend.received.length === 4);
  again.close();
});

test("a process whose heap really fills up refuses instead of dying, and serves again when it is free [R36]", {
  timeout: 180_000,
}, async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  // On the first signal it keeps objects until V8's old generation is 95.5 % full; on the second it lets them go:
  // they are garbage then, and nothing but the gateway itself makes V8 collect it. It makes no garbage before that,
  // because V8 ends a process that collects in vain, and takes a megabyte a turn for the same reason.
  const ballast = `data:text/javascript,${encodeURIComponent(`
    import v8 from "node:v8";
    let kept = [];
    const used = () => v8.getHeapSpaceStatistics().reduce((sum, space) =>
      sum + (space.space_name === "new_space" ? 0 : space.space_used_size), 0);
    const fill = () => {
      if (used() >= 0.955 * ${HEAP_MIB} * 1024 * 1024) return;
      const numbers = [1.5];
      numbers.length = 131_072;
      kept.push(numbers);
      setImmediate(fill);
    };
    process.on("SIGWINCH", () => {
      if (kept.length === 0) fill();
      else kept = [];
    });`)}`;
  const yaml = `config: { adminAddr: off }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`;
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
    compiled: true,
    nodeFlags: [`--max-old-space-size=${HEAP_MIB}`, `--import=${ballast}`],
  });
  const url = `http://127.0.0.1:${await gateway.port()}`;
  const statuses = async (): Promise<number[]> =>
    Promise.all(Array.from({ length: 50 }, async () => (await fetch(url)).status));
  assert.deepEqual(new Set(await statuses()), new Set([200]));

  gateway.child.kill("SIGWINCH");
  await gateway.logged("new requests are rejected");
  for (let i = 0; i < 5; i++) assert.deepEqual(new Set(await statuses()), new Set([503]));

  gateway.child.kill("SIGWINCH");
  await gateway.logged("memory is available again");
  assert.deepEqual(new Set(await statuses()), new Set([200]));
});

test("bodies that are held outside of the heap are limited by the memory of the container [R51]", {
  timeout: 180_000,
}, async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("{}"));
  // A container of 224 MiB, as the process sees it.
  const container = `data:text/javascript,${encodeURIComponent("process.constrainedMemory = () => 224 * 1024 * 1024;")}`;
  const yaml = `config: { adminAddr: off }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { matches: [{ path: { pathPrefix: /llm } }], backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${backend.host}" } }] }
  - { backends: [{ host: "${backend.host}" }] }
`;
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
    compiled: true,
    nodeFlags: [`--import=${container}`],
  });
  const port = await gateway.port();
  const status = async (): Promise<number> => (await fetch(`http://127.0.0.1:${port}/`)).status;
  assert.equal(await status(), 200);

  // Each would be held whole before the provider is asked, and its last byte never comes. All are let in before the first
  // one takes memory; one at a time is read, and the others wait.
  const bodyBytes = 30 * 1024 * 1024;
  const uploads = Array.from({ length: 6 }, () => openRawClient(port));
  for (const client of uploads) {
    client.write(
      `POST /llm/v1/chat/completions HTTP/1.1\r\nHost: a\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: ${bodyBytes}\r\n\r\n`,
    );
    await client.until("100 Continue");
  }
  for (const client of uploads)
    client.write(`{"model":"m","messages":[{"role":"user","content":"${"x".repeat(bodyBytes - 1024 * 1024)}`);
  await gateway.logged("there is no memory for the body of the request");
  assert.equal(await status(), 200);
  assert.doesNotMatch(gateway.stdout(), /new requests are rejected/);
  for (const upload of uploads) upload.close();
});
