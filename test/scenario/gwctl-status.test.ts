/**
 * gwctl as an overview: `status`, `requests --follow`, tables, and the ways to say which gateway is meant.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl, startGwctl } from "../support/gwctl.ts";

let gateway: TestGateway;
let port: string;
before(async () => {
  gateway = await startGateway(`
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    backends: [{ mcp: { targets: [{ name: gone, mcp: { url: "http://127.0.0.1:1/mcp" } }] } }]
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    policies:
      directResponse: { status: 200, body: ok }
      rateLimit: { local: [{ requests: 2, unit: Minutes, key: 'request.headers["x-user"]' }] }
  - name: down
    matches: [{ path: { pathPrefix: /down } }]
    backends: [{ host: "127.0.0.1:1" }]
`);
  port = new URL(gateway.adminUrl).port;
});
after(() => gateway?.close());

const call = (path: string, headers: Record<string, string> = {}): Promise<string> =>
  fetch(`${gateway.url()}${path}`, { headers }).then((response) => response.text());

test("status shows the gateway on one screen, with its problems in words", async () => {
  const calm = await gwctl(["status", "-p", port]);
  assert.equal(calm.code, 0, calm.stderr);
  assert.match(calm.stdout, /^State +serving$/m);
  assert.match(calm.stdout, /^Listeners +default HTTP :\d+ \(3 routes\)$/m);
  assert.match(calm.stdout, /^No problems\.$/m);
  assert.match(calm.stdout, /^ {2}gone +not started +tools\/backend0$/m);
  for (let i = 0; i < 3; i++) await call("/limited", { "x-user": "alice" });
  await call("/down");
  const { stdout } = await gwctl(["status", "-p", port]);
  assert.match(stdout, /^Errors +1 failed \(25%\), 1 rejected of 4 requests$/m);
  assert.match(stdout, /^ {2}✗ 1 request to down failed \([a-z_]+\) in the last 15 min$/m);
  assert.match(stdout, /^ {2}! Limit of route limited is exhausted for #\w+; it resets in \d+ (?:s|min)$/m);
  assert.match(stdout, /^ {2}route limited +#\w+ +0 of 2 left +resets in \d+ (?:s|min)$/m);
  const { problems, version } = JSON.parse((await gwctl(["status", "-p", port, "-o", "json"])).stdout);
  // A busy machine may have more to tell.
  const told = JSON.stringify(problems);
  assert.match(told, /1 request to down failed/, told);
  assert.match(told, /Limit of route limited is exhausted/, told);
  assert.equal(typeof version, "string");
});

// The value of a header may be a secret: its bucket is shown by a digest, and found by the value.
test("limits are a table, the emptiest bucket first; --key finds one", async () => {
  for (let i = 0; i < 3; i++) await call("/limited", { "x-user": "carol" });
  await call("/limited", { "x-user": "dave" });
  const { stdout } = await gwctl(["proxy", "limits", "-p", port]);
  assert.match(stdout, /^APPLIES TO +LIMIT +KEY +LEFT +RESETS IN +REJECTED$/m);
  assert.match(stdout, /^route limited +2 requests per minute by request\.headers\["x-user"\] +\S+ +░{10} +0\/2 /m);
  assert.match(stdout, /^ +#\w+ +█{5}░{5} +1\/2 +\d+ (?:s|min)$/m);
  const found = await gwctl(["proxy", "limits", "--key", "dave", "-p", port]);
  assert.match(found.stdout, /^[^\n]*\nroute limited [^\n]* 1\/2 [^\n]*\n +… 2 more keys\n$/);
});

test("top tells the busiest routes, once or again and again, and refuses what it does not know", async () => {
  for (let i = 0; i < 5; i++) await call("/down");
  const { stdout } = await gwctl(["top", "--once", "-p", port]);
  assert.match(stdout, /^ROUTE +RATE +REQUESTS +FAILED +REJECTED +P95/m);
  assert.match(stdout, /^down +\d[\d.]*\/(?:s|min) +\d+ +100% +- /m);
  const { route, windowMs } = JSON.parse(
    (await gwctl(["top", "--once", "--by", "route", "-o", "json", "-p", port])).stdout,
  );
  assert.equal(route.find(({ name }: { name: string }) => name === "down").failed, 1);
  assert.ok(windowMs >= 1_000);
  const live = startGwctl(["top", "--interval", "0.5", "-o", "json", "-p", port]);
  let told = "";
  live.child.stdout.on("data", (chunk: Buffer) => {
    told += chunk.toString();
  });
  await eventually("a first look", () => told.includes('"windowMs"'));
  await call("/nowhere-before");
  await eventually("a later look", () => told.includes('"name":"(no route)"'));
  live.child.kill();
  await live.result;
  for (const [flag, value] of [
    ["--by", "colour"],
    ["--interval", "0"],
  ] as const) {
    const wrong = await gwctl(["top", flag, value, "-p", port]);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, new RegExp(`invalid ${flag} ${value}: expected`));
  }
});

test("requests --follow prints each request once, as it ends, and says when the gateway ends", async (t) => {
  const own = await startGateway(`
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ name: only, policies: { directResponse: { status: 204 } } }]
`);
  t.after(() => own.close());
  await fetch(`${own.url()}/before`);
  const following = startGwctl(["requests", "--follow", "-o", "json", "-p", new URL(own.adminUrl).port]);
  await following.said("following; Ctrl-C to stop");
  await fetch(`${own.url()}/after-1`);
  await fetch(`${own.url()}/after-2`);
  await own.close();
  const { code, stdout, stderr } = await following.result;
  const paths = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).path);
  assert.deepEqual(paths, ["/before", "/after-1", "/after-2"]);
  assert.equal(code, 1);
  assert.match(stderr, /gwctl: the gateway closed the connection: is it still running\?\n$/);
});

test("the gateway may be named before, between and after the words, or in the environment; a flag wins", async () => {
  for (const args of [
    ["-p", port, "proxy", "config", "routes"],
    ["proxy", "-p", port, "config", "routes"],
    ["proxy", "config", "--admin-port", port, "routes"],
    ["proxy", "config", "routes", "-p", port],
    ["-p", "1", "proxy", "config", "routes", "-p", port],
  ])
    assert.match((await gwctl(args)).stdout, /^limited /m, args.join(" "));
  const named = await gwctl(["proxy", "config", "routes"], { environment: { GWCTL_ADMIN_PORT: port } });
  assert.match(named.stdout, /^limited /m);
  const flagged = await gwctl(["requests", "-p", "1"], { environment: { GWCTL_ADMIN_PORT: port } });
  assert.match(flagged.stderr, /no gateway answers at 127\.0\.0\.1:1:/);
  const wrong = await gwctl(["requests"], { environment: { GWCTL_ADMIN_PORT: "many" } });
  assert.equal(wrong.code, 2);
});

test("what is wrong with an expression is said in full", async () => {
  const { code, stderr } = await gwctl(["cel", "1 +", "-p", port]);
  assert.equal(code, 2);
  assert.match(stderr, /syntax error at/);
  assert.doesNotMatch(stderr, /\{/);
});

test("the help of every command has an example", async () => {
  const visit = async (path: readonly string[]): Promise<void> => {
    const { stdout } = await gwctl([...path, "--help"]);
    const sections = stdout.split("\n\n").filter((one) => !/^(?:Arguments|Examples|Common commands):/.test(one));
    const commands = sections.join("\n").match(/^ {2}[a-z][a-z-]*(?= {2,})/gm);
    if (commands === null) assert.match(stdout, /\nExamples:\n {2}(?:gwctl|source) /, path.join(" "));
    else for (const name of commands.map((one) => one.trim())) if (name !== "help") await visit([...path, name]);
  };
  await visit([]);
});

test("completion offers commands, and ids of requests that the gateway knows", { skip: !hasBash() }, async () => {
  await call("/limited", { "x-request-id": "complete-me-1" });
  const { stdout } = await gwctl(["completion", "bash"]);
  const ids = (await gwctl(["-p", port, "complete-names", "requests"])).stdout.split("\n");
  assert.ok(ids.includes("complete-me-1"));
  // The shell asks `gwctl` for names: here a function that answers as the program just did.
  const complete = (...words: string[]): string[] => {
    const script = `${stdout}
gwctl() { printf '%s\\n' ${ids.filter(Boolean).join(" ")}; }
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _gwctl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return spawnSync("bash", ["--norc", "-c", script], { encoding: "utf8" }).stdout.trim().split("\n");
  };
  assert.deepEqual(complete("gwctl", "sta"), ["status"]);
  assert.deepEqual(complete("gwctl", "proxy", "li"), ["limits"]);
  assert.deepEqual(complete("gwctl", "explain", "complete-me"), ["complete-me-1"]);
  assert.deepEqual(complete("gwctl", "cel", "--request", "complete-me"), ["complete-me-1"]);
  assert.deepEqual(complete("gwctl", "completion", "z"), ["zsh"]);
});

function hasBash(): boolean {
  return spawnSync("bash", ["-c", "true"]).status === 0;
}
