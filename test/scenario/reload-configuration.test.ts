/**
 * Hot reload: every way in which files change, good and bad, under load and with streams open.
 */
import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { freePort } from "../support/free-port.ts";
import { openRawClient, rawRequest, requestText } from "../support/raw-client.ts";
import { after, bodyOf, reloadState, says } from "../support/reload.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

test("a rewritten, a replaced and a swapped file are all noticed [R25]", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  const file = join(gateway.folder, "config.yaml");
  assert.equal(await bodyOf(gateway), "one");

  assert.equal(await after(gateway, () => writeFileSync(file, says("two"))), "loaded");
  assert.equal(await bodyOf(gateway), "two");

  assert.equal(
    await after(gateway, () => {
      writeFileSync(`${file}.new`, says("three"));
      renameSync(`${file}.new`, file);
    }),
    "loaded",
  );
  assert.equal(await bodyOf(gateway), "three");

  // As Kubernetes mounts a ConfigMap: the file is a link into a folder that is itself a link, which is swapped.
  const version = (name: string, text: string): void => {
    mkdirSync(join(gateway.folder, name));
    writeFileSync(join(gateway.folder, name, "config.yaml"), says(text));
    symlinkSync(name, join(gateway.folder, "..data.new"));
    renameSync(join(gateway.folder, "..data.new"), join(gateway.folder, "..data"));
  };
  assert.equal(
    await after(gateway, () => {
      version("..v1", "four");
      unlinkSync(file);
      symlinkSync("..data/config.yaml", file);
    }),
    "loaded",
  );
  assert.equal(await bodyOf(gateway), "four");
  assert.equal(await after(gateway, () => version("..v2", "five")), "loaded");
  assert.equal(await bodyOf(gateway), "five");
  assert.equal((await reloadState(gateway)).generation, 5);
});

test("a file that is written in pieces counts when it is whole [R25]", async (t) => {
  const clock = fakeClock();
  const gateway = await gatewayFor(t, says("one"), { clock });
  const file = join(gateway.folder, "config.yaml");
  const text = says("two");
  for (let end = 10; end < text.length + 10; end += 10) {
    writeFileSync(file, text.slice(0, end));
    await clock.advance(30);
  }
  await clock.advance(1_000);
  await gateway.logged("configuration loaded generation=2");
  assert.equal(await bodyOf(gateway), "two");
  assert.equal(gateway.log().filter((line) => line.includes("rejected")).length, 0, "no piece was taken for the whole");
});

test("a bad file keeps the running configuration and is shown until it is mended or taken back [R24]", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  assert.equal(await gateway.reload("gateways: { default: { prt: 1 } }\n"), "refused");
  assert.equal(await bodyOf(gateway), "one");
  const { refused, generation } = await reloadState(gateway);
  assert.equal(generation, 1);
  assert.match(refused?.problems.join("\n") ?? "", /config\.yaml:1:\d+: gateways\.default\.prt: unknown field/);
  assert.ok(gateway.log().some((line) => line.includes("error config") && line.includes("unknown field")));
  assert.match(
    await (await fetch(`${gateway.adminUrl}/metrics`)).text(),
    /gateway_config_reloads_total\{result="refused"\} 1/,
  );

  assert.equal(await gateway.reload("a: [unfinished"), "refused");
  assert.equal(await gateway.reload("a: ${UNSET}"), "refused");
  assert.equal(await gateway.reload(""), "refused", "what a save on a full disk leaves behind");
  assert.equal(await gateway.reload("# nothing\n"), "refused");
  assert.equal(await bodyOf(gateway), "one");
  assert.equal(await gateway.reload(says("two")), "loaded");
  assert.equal(await bodyOf(gateway), "two");
  assert.equal((await reloadState(gateway)).refused, undefined);
});

test("a file that disappears and comes back as it was is no change, and no lasting complaint", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  const file = join(gateway.folder, "config.yaml");
  assert.equal(await after(gateway, () => rmSync(file)), "refused");
  assert.equal(await bodyOf(gateway), "one");
  assert.match((await reloadState(gateway)).refused?.problems[0] ?? "", /cannot read .*no such file/);
  writeFileSync(file, says("one"));
  await gateway.logged("readable again");
  assert.equal((await reloadState(gateway)).refused, undefined);
  assert.equal((await reloadState(gateway)).generation, 1);
});

test("a change of `config:` waits for a restart and says so; other changes count [S2.1-12] [S2.1-20] [S8-17]", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  assert.equal(await gateway.reload(says("two", "config: { drainTimeout: 5s }\n")), "loaded");
  assert.equal(await bodyOf(gateway), "two");
  assert.ok(gateway.log().some((line) => line.includes("warn") && line.includes("restart the gateway to apply it")));
  assert.deepEqual((await reloadState(gateway)).needsRestart, ["config"]);
  assert.equal(await gateway.reload(says("three")), "loaded");
  assert.deepEqual((await reloadState(gateway)).needsRestart, []);
});

test("listeners come and go; a port that is taken refuses the whole change", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  const two = `gateways: { default: { port: 0 }, second: { port: 0 } }\nroutes: [{ gateways: [default, second], policies: { directResponse: { body: both } } }]\n`;
  assert.equal(await gateway.reload(two), "loaded");
  const second = gateway.url("second");
  assert.equal(await (await fetch(second)).text(), "both");
  assert.equal(await gateway.reload(says("one again")), "loaded");
  await assert.rejects(fetch(second), "the second listener is gone");
  assert.equal(await bodyOf(gateway), "one again");

  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, resolve));
  t.after(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  assert.equal(
    await gateway.reload(
      `gateways: { default: { port: 0 }, other: { port: ${port} } }\nroutes: [{ gateways: default, policies: { directResponse: { body: new } } }]\n`,
    ),
    "refused",
  );
  assert.equal(await bodyOf(gateway), "one again", "nothing of it was taken over");
  assert.match(
    (await reloadState(gateway)).refused?.problems[0] ?? "",
    new RegExp(
      `config\\.yaml:\\d+:\\d+: gateways\\.other\\.port: cannot listen on \\*:${port}: the address is already in use`,
    ),
  );
});

test("a listener moves to another address of the same port, and back if that fails", async (t) => {
  const port = await freePort();
  const at = (address: string, text: string): string =>
    `gateways: { default: { port: ${port}, address: "${address}" } }\nroutes: [{ policies: { directResponse: { body: ${text} } } }]\n`;
  const gateway = await gatewayFor(t, at("0.0.0.0", "wide"));
  assert.equal(await gateway.reload(at("127.0.0.1", "narrow")), "loaded");
  assert.match((await rawRequest(port, requestText("GET / HTTP/1.1"))).text, /narrow$/);
  // 192.0.2.1 belongs to nobody.
  assert.equal(await gateway.reload(at("192.0.2.1", "elsewhere")), "refused");
  assert.match((await rawRequest(port, requestText("GET / HTTP/1.1"))).text, /narrow$/);
  assert.match((await reloadState(gateway)).refused?.problems[0] ?? "", /gateways\.default\.address/);
});

test("requests in flight and streams finish on the configuration that they began with [R26]", async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/stream") {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write("data: 1\n\n");
    }
    held.push(res);
  });
  const proxy = `gateways: { default: { port: 0 } }\nroutes: [{ policies: { responseHeaderModifier: { set: { x-generation: old } } }, backends: [{ host: "${backend.host}" }] }]\n`;
  const gateway = await gatewayFor(t, proxy);
  const stream = await fetch(`${gateway.url()}/stream`);
  const waiting = fetch(`${gateway.url()}/waits`);
  await eventually("both are at the backend", () => held.length === 2);
  assert.equal(await gateway.reload(says("new")), "loaded");
  assert.equal(await bodyOf(gateway), "new");
  held[0]?.end("data: 2\n\n");
  held[1]?.end("late");
  const response = await waiting;
  assert.equal(response.headers.get("x-generation"), "old");
  assert.equal(await response.text(), "late");
  assert.equal(await stream.text(), "data: 1\n\ndata: 2\n\n");
});

test("a stream on a listener that a reload removes runs to its end", async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write("data: 1\n\n");
    held.push(res);
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 }, old: { port: 0 } }\nroutes: [{ gateways: old, backends: [{ host: "${backend.host}" }] }]\n`,
  );
  const url = gateway.url("old");
  const stream = await fetch(url);
  assert.equal(await gateway.reload(says("x")), "loaded");
  const isRefused = (): Promise<boolean> =>
    fetch(url).then(
      () => false,
      () => true,
    );
  await eventually("the listener takes nobody any more", isRefused);
  held[0]?.end("data: 2\n\n");
  assert.equal(await stream.text(), "data: 1\n\ndata: 2\n\n");
});

test("reloads under load fail no request [R24] [R25]", async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const yaml = (generation: number): string =>
    `gateways: { default: { port: 0 } }\nroutes: [{ policies: { responseHeaderModifier: { set: { x-generation: "${generation}" } } }, backends: [{ host: "${backend.host}" }] }]\n`;
  const gateway = await gatewayFor(t, yaml(0));
  let isOver = false;
  const request = async (): Promise<string | null> => {
    const response = await fetch(gateway.url());
    assert.equal(response.status, 200);
    assert.equal(await response.text(), "ok");
    return response.headers.get("x-generation");
  };
  const load = Array.from({ length: 8 }, async () => {
    while (!isOver) await request();
  });
  for (let generation = 1; generation <= 4; generation++) {
    assert.equal(await gateway.reload(yaml(generation)), "loaded");
    assert.equal(await request(), String(generation));
    assert.equal(await gateway.reload("broken: ["), "refused");
    assert.equal(await request(), String(generation));
  }
  isOver = true;
  await Promise.all(load);
  assert.equal(backend.server.listening, true);
});

test("one connection is kept across a reload", async (t) => {
  const gateway = await gatewayFor(t, says("one"));
  const client = openRawClient(gateway.port());
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.until("one");
  assert.equal(await gateway.reload(says("two")), "loaded");
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.until("two");
  client.close();
});

test("a directory is watched for new, changed and removed files", async (t: TestContext) => {
  const { startApp } = await import("../../src/app/app.ts");
  const { systemClock } = await import("../../src/base/clock.ts");
  const seed = await gatewayFor(t, says("x"));
  const folder = join(seed.folder, "conf");
  mkdirSync(folder);
  writeFileSync(join(folder, "a.yaml"), says("a"));
  const lines: string[] = [];
  const app = await startApp({
    sources: [folder],
    environment: {},
    clock: systemClock,
    output: { write: (line) => void lines.push(line), dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
    defaultAdminAddr: "off",
  });
  t.after(async () => {
    const stopping = app.stop();
    await app.stop();
    await stopping;
  });
  const url = `http://127.0.0.1:${[...app.ports().values()][0]}`;
  const text = async (): Promise<string> => (await fetch(url)).text();
  assert.equal(await text(), "a");
  writeFileSync(join(folder, "a.yaml"), says("b"));
  await eventually("the change is served", async () => (await text()) === "b");
  writeFileSync(join(folder, "b.yaml"), says("c"));
  await eventually("a second configuration is refused", () =>
    lines.some((line) => line.includes("a second standalone configuration")),
  );
  rmSync(join(folder, "a.yaml"));
  await eventually("the other one is served", async () => (await text()) === "c");
  rmSync(join(folder, "b.yaml"));
  await eventually("an emptied folder is refused", () =>
    lines.some((line) => line.includes("config: the configuration is empty")),
  );
  assert.equal(await text(), "c");
});
