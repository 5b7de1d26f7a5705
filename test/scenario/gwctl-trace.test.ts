/**
 * gwctl trace against a running gateway: it waits for requests, sends one of its own, and opens what was saved.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { TraceEvent } from "../../src/record/trace/record.ts";
import type { TestGateway } from "../support/gateway.ts";
import { gwctl, startGwctl } from "../support/gwctl.ts";
import { type GwctlGateway, openGwctlGateway } from "../support/gwctl-gateway.ts";

let world: GwctlGateway;
let gateway: TestGateway;
let port: string;
let folder: string;
let local: GwctlGateway["local"];
before(async () => {
  world = await openGwctlGateway();
  ({ gateway, port, folder, local } = world);
});
after(() => world?.close());
const eventsOf = (stdout: string): TraceEvent[] =>
  stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as TraceEvent);

test("watch mode waits for the next request and prints JSON lines [S1-6] [S4.4-1]", async () => {
  const watching = startGwctl(["proxy", "trace", "--local", "--raw", "-p", port]);
  await watching.said("waiting for the next request");
  await fetch(`${gateway.url()}/echo/watched`).then((response) => response.text());
  const { code, stdout } = await watching.result;
  assert.equal(code, 0);
  const types = eventsOf(stdout).map(({ message }) => message.type);
  assert.equal(types[0], "requestStarted");
  assert.equal(types.at(-1), "requestFinished");
});

test("without a terminal and without --raw it prints a list [S6-5]", async () => {
  const watching = startGwctl(["proxy", "trace", "--local", "-p", port]);
  await watching.said("waiting for the next request");
  await fetch(`${gateway.url()}/echo/listed`).then((response) => response.text());
  const { stdout } = await watching.result;
  for (const label of [
    "Request Start",
    "Snapshot",
    "Route",
    "Policies",
    "Backend Start",
    "Backend Result",
    "Request Done",
  ])
    assert.ok(stdout.includes(label), label);
});

test("a saved trace opens again with --file, from a file and from standard input", async () => {
  const watching = startGwctl(["proxy", "trace", "--local", "--raw", "-p", port]);
  await watching.said("waiting for the next request");
  await fetch(`${gateway.url()}/echo/saved`).then((response) => response.text());
  const saved = (await watching.result).stdout;
  const file = join(folder, "trace.jsonl");
  writeFileSync(file, saved);
  const fromFile = await gwctl(["proxy", "trace", "--file", file]);
  assert.match(fromFile.stdout, /Request Done {3}request finished status=200/);
  const fromInput = await gwctl(["proxy", "trace", "--file", "-", "--raw"], { input: saved });
  assert.equal(fromInput.stdout, saved);
  writeFileSync(file, "not a trace");
  assert.equal((await gwctl(["proxy", "trace", "--file", file])).code, 1);
});

test("inject mode sends the request to the listener with the URL's host, and traces that one [S4.4-4] [S4.4-10]", async () => {
  const received = world.backend.received.length;
  const { code, stdout, stderr } = await gwctl([
    "proxy",
    "trace",
    "--local",
    "--raw",
    "-p",
    port,
    "--port",
    String(gateway.port()),
    "--",
    "http://name.invalid/echo/injected?x=1",
    "-X",
    "PUT",
    "-H",
    "content-type: text/plain",
    "-d",
    "hello",
  ]);
  assert.equal(code, 0, stderr);
  const request = world.backend.received[received];
  assert.equal(request?.method, "PUT");
  assert.equal(request?.headers.host, "name.invalid");
  assert.equal(request?.body, "hello");
  const [, snapshot] = eventsOf(stdout);
  assert.equal(
    snapshot?.message.type === "requestSnapshot" && (snapshot.message.requestState.request as { host: string }).host,
    "name.invalid",
  );
});

test("inject mode is not disturbed by other requests that come first", async () => {
  let busy = true;
  const noise = (async () => {
    while (busy) await fetch(`${gateway.url()}/echo/noise`).then((response) => response.text());
  })();
  const { stdout } = await gwctl([
    "proxy",
    "trace",
    "--raw",
    "-p",
    port,
    "--port",
    String(gateway.port()),
    "--",
    "http://a.test/echo/mine",
  ]);
  busy = false;
  await noise;
  assert.match(stdout, /"path":"\/echo\/mine"/);
  assert.doesNotMatch(stdout, /"path":"\/echo\/noise"/);
});

test("inject mode ignores proxies of the environment [G2]", async () => {
  let hits = 0;
  const sink = createServer((_req, res) => {
    hits += 1;
    res.end();
  });
  await new Promise<void>((resolve) => sink.listen(0, "127.0.0.1", resolve));
  const proxy = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;
  const { code } = await gwctl(
    ["proxy", "trace", "--raw", "-p", port, "--port", String(gateway.port()), "--", "http://a.test/echo/direct"],
    { environment: { http_proxy: proxy, HTTP_PROXY: proxy, ALL_PROXY: proxy, all_proxy: proxy } },
  );
  assert.equal(code, 0);
  assert.equal(hits, 0);
  sink.close();
});

test("without curl, inject mode says what to do", async () => {
  const { code, stderr } = await gwctl(
    ["proxy", "trace", "--raw", "-p", port, "--port", String(gateway.port()), "--", "http://a.test/echo"],
    { environment: { PATH: folder } },
  );
  assert.equal(code, 1);
  assert.match(stderr, /curl is not installed; install it, or omit the URL/);
});

test("a listener port that is none is named", async () => {
  const { code, stderr } = await gwctl(["proxy", "trace", "--raw", "-p", port, "--port", "1", "--", "http://a.test/"]);
  assert.equal(code, 1);
  assert.match(stderr, /curl failed with exit code 7.*is --port 1 a listener\?/s);
});

test("explain tells the story of one request by its id", async () => {
  const response = await fetch(`${gateway.url()}/down`, { headers: { "x-request-id": "ticket-42" } });
  await response.text();
  const { code, stdout } = await local(["explain", response.headers.get("x-request-id") ?? ""]);
  assert.equal(code, 0);
  assert.match(
    stdout,
    /^Backend `down\/backend0` failed \(`backend_unavailable`, 502\): .*ECONNREFUSED[\s\S]*\nRoute `down` matched\.\n/,
  );
  const unknown = await local(["explain", "never-seen"]);
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /no request "never-seen" among the last 10000/);
});

test("requests lists the last ones; --failed only those that went wrong", async () => {
  await fetch(`${gateway.url()}/echo/fine`).then((response) => response.text());
  await fetch(`${gateway.url()}/down/again`).then((response) => response.text());
  const all = await local(["requests"]);
  assert.match(all.stdout, /GET \/echo\/fine/);
  const failed = await local(["requests", "--failed"]);
  assert.match(failed.stdout, /GET \/down\/again .*backend_unavailable/);
  assert.doesNotMatch(failed.stdout, /GET \/echo\/fine/);
  assert.equal((JSON.parse((await local(["requests", "-o", "json", "--limit", "1"])).stdout) as unknown[]).length, 1);
});
