/**
 * Sessions that open from the stored definitions of servers that are still starting. Each server starts when the test
 * creates its file, so the order of events does not depend on time.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

interface Served extends ServedBackend {
  /** Lets the processes start that exist and those that follow. */
  start(): void;
  /** New processes wait. */
  hold(): void;
  /** The next processes run this command instead of the server. */
  replace(command: string): void;
}

const quoted = (words: readonly string[]): string => words.map((word) => `'${word}'`).join(" ");

async function serve(
  t: TestContext,
  settings: object = {},
  names: readonly string[] = ["one", "two"],
): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "early-lists-"));
  const gate = join(folder, "go");
  const script = join(folder, "instead");
  const targets = names.map((name) => {
    const { cmd, args } = stdioFixture("odd-server", `--name=${name}`);
    const wait = `while [ ! -e '${gate}' ]; do sleep 0.02; done`;
    const run = `if [ -e '${script}' ]; then . '${script}'; else exec ${quoted([cmd, ...args])}; fi`;
    return { name, stdio: { cmd: "sh", args: ["-c", `${wait}; ${run}`] } };
  });
  writeFileSync(gate, "");
  const served = await serveMcp({ targets, ...settings });
  t.after(async () => {
    writeFileSync(gate, "");
    await served.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return Object.assign(served, {
    start: () => writeFileSync(gate, ""),
    hold: () => rmSync(gate, { force: true }),
    replace: (command: string) => writeFileSync(script, command),
  });
}

const toolNames = async (client: RawClient): Promise<string[]> =>
  (await client.request("tools/list")).result.tools.map(({ name }: { name: string }) => name);

/** A session that lists the tools of running servers, so that the gateway stores them. */
async function first(served: Served, params: object = {}): Promise<string[]> {
  const client = rawClient(served.url);
  await client.initialize({ ...params });
  const names = await toolNames(client);
  await client.request("prompts/list");
  return names;
}

/** Many requests later, a session that does not wait for its servers is open. */
async function otherRequests({ url }: Served): Promise<string> {
  for (let i = 0; i < 50; i++) await (await fetch(url, { method: "PUT" })).text();
  return "waits";
}

/** Resolves with whether a session opens while its servers wait. */
async function opensEarly(served: Served, params: object = {}): Promise<boolean> {
  served.hold();
  const client = rawClient(served.url);
  const opening = client.initialize({ ...params }).then(() => "open");
  const wasEarly = (await Promise.race([opening, otherRequests(served)])) === "open";
  served.start();
  await opening;
  await client.delete();
  return wasEarly;
}

test("a session opens and lists while its servers start, and calls wait for them", async (t) => {
  const served = await serve(t);
  const names = await first(served);
  served.hold();
  const client = rawClient(served.url);
  const opened = await client.initialize();
  assert.equal(opened.message.result.serverInfo.name, "gateway");
  assert.equal(opened.message.result.capabilities.tools.listChanged, true);
  assert.deepEqual(await toolNames(client), names);
  assert.ok(names.includes("one_echo") && names.includes("two_echo"));
  const called = client.call("two_echo", { message: "hi" });
  served.start();
  assert.equal((await called).result.content[0].text, "hi");
  const { result } = await client.call("one_state");
  assert.equal(JSON.parse(result.content[0].text).initializedCount, 1);
});

test("a tool that a server no longer has is announced, and a call gets the server's error", async (t) => {
  const served = await serve(t);
  const names = await first(served);
  const { cmd, args } = stdioFixture("odd-server", "--name=other", "--tools=1");
  served.hold();
  served.replace(`exec ${quoted([cmd, ...args])}`);
  const client = rawClient(served.url);
  await client.initialize();
  assert.deepEqual(await toolNames(client), names);
  const stream = await client.listen();
  served.start();
  await stream.next((message) => message.method === "notifications/tools/list_changed");
  // Each server is announced when it is up.
  await eventually("the new tools are listed", async () => {
    const now = await toolNames(client);
    return ["one_tool-0", "two_tool-0"].every((name) => now.includes(name));
  });
  assert.match((await client.call("one_gone")).error.message, /Unknown tool|not found/i);
  stream.close();
});

test("a server that no longer starts is announced, and lists and calls name the reason", async (t) => {
  const served = await serve(t);
  await first(served);
  served.hold();
  served.replace("exit 3");
  const client = rawClient(served.url);
  await client.initialize();
  await toolNames(client);
  const stream = await client.listen();
  served.start();
  await stream.next((message) => message.method === "notifications/tools/list_changed");
  assert.match((await client.call("one_echo")).error.message, /exited with code 3/);
  stream.close();
});

test("access rules apply to stored lists", async (t) => {
  const served = await serve(t);
  const names = await first(served);
  served.access = { allows: (_kind, name, target) => target === "one" && name === "echo" };
  served.hold();
  const client = rawClient(served.url);
  await client.initialize();
  assert.deepEqual(await toolNames(client), ["one_echo"]);
  assert.ok(names.length > 1);
  assert.match((await client.call("one_state")).error.message, /Unknown tool/);
});

test("a definition belongs to one principal, and one kind of client", async (t) => {
  const served = await serve(t);
  served.attributes = { jwt: { iss: "https://issuer", sub: "ada" } };
  await first(served);
  assert.equal(await opensEarly(served), true);
  served.attributes = { jwt: { iss: "https://issuer", sub: "bob" } };
  assert.equal(await opensEarly(served), false, "another principal");
  served.attributes = { jwt: { iss: "https://issuer", sub: "ada" } };
  assert.equal(await opensEarly(served, { capabilities: { roots: {} } }), false, "other capabilities");
  assert.equal(await opensEarly(served, { clientInfo: { name: "other", version: "1" } }), false, "another client");
});

test("lists of a session that called a tool are not stored", async (t) => {
  const served = await serve(t);
  const client = rawClient(served.url);
  await client.initialize();
  await client.call("one_echo", { message: "hi" });
  await toolNames(client);
  served.hold();
  const second = rawClient(served.url);
  await second.initialize();
  const listing = toolNames(second).then(() => "listed");
  assert.equal(await Promise.race([listing, otherRequests(served)]), "waits");
  served.start();
  await listing;
});

test("with one server or failClosed, sessions wait for their servers", async (t) => {
  for (const [settings, names] of [
    [{ failureMode: "failClosed" }, ["one", "two"]],
    [{}, ["one"]],
  ] as const) {
    const served = await serve(t, settings, names);
    await first(served);
    assert.equal(await opensEarly(served), false);
  }
});
