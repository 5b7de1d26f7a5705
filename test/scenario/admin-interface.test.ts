/**
 * The admin interface (spec 4.2): where it binds, whom it answers, and what it shows.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGateway } from "../support/gateway.ts";
import { openRawClient, rawRequest } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const portOf = (url: string): number => Number(new URL(url).port);

const guarded: [name: string, headers: string[], status: number][] = [
  ["a loopback name", ["Host: localhost"], 200],
  ["a loopback name in capitals", ["Host: LOCALHOST:1"], 200],
  ["a loopback address", ["Host: 127.0.0.1:15000"], 200],
  ["another loopback address", ["Host: 127.1.2.3"], 200],
  ["the IPv6 loopback address", ["Host: [::1]:15000"], 200],
  ["a foreign name", ["Host: evil.test"], 403],
  ["a foreign name that begins like ours", ["Host: localhost.evil.test"], 403],
  ["a foreign address", ["Host: 192.0.2.1"], 403],
  ["an address that only looks like loopback", ["Host: 127.0.0.1.evil.test"], 403],
  ["a path in Host", ["Host: x/health?"], 400],
  ["an empty Host", ["Host:"], 400],
  ["its own origin", ["Host: localhost:1", "Origin: http://localhost:1"], 200],
  ["another port's origin", ["Host: localhost:1", "Origin: http://localhost:2"], 403],
  ["a foreign origin", ["Host: localhost", "Origin: https://evil.test"], 403],
  ["the origin null", ["Host: localhost", "Origin: null"], 403],
  ["a navigation from the address bar", ["Host: localhost", "Sec-Fetch-Site: none"], 200],
  ["a page of its own", ["Host: localhost", "Sec-Fetch-Site: same-origin"], 200],
  ["a page of another site", ["Host: localhost", "Sec-Fetch-Site: cross-site"], 403],
  ["a page of a sibling", ["Host: localhost", "Sec-Fetch-Site: same-site"], 403],
  ["a page that says both", ["Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none"], 403],
];

test("Host, Origin and Sec-Fetch-Site decide who is answered [N1] [V7] [V27]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  for (const [name, headers, status] of guarded) {
    const answer = await rawRequest(
      portOf(gateway.adminUrl),
      `GET /healthz/live HTTP/1.1\r\nConnection: close\r\n${headers.join("\r\n")}\r\n\r\n`,
    );
    assert.equal(answer.status, status, name);
  }
});

test("a foreign page cannot shut the gateway down, nor can a GET [N1] [N2]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  const port = portOf(gateway.adminUrl);
  const post = `POST /quitquitquit HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n`;
  assert.equal((await rawRequest(port, `${post}Host: localhost\r\nOrigin: https://evil.test\r\n\r\n`)).status, 403);
  assert.equal((await rawRequest(port, `${post}Host: evil.test\r\n\r\n`)).status, 403);
  assert.equal((await fetch(`${gateway.adminUrl}/quitquitquit`)).status, 405);
  assert.equal((await fetch(`${gateway.adminUrl}/healthz/ready`)).status, 200);
});

const methods: [method: string, path: string, status: number, allow: string | null][] = [
  ["GET", "/config_dump", 200, null],
  ["HEAD", "/config_dump", 200, null],
  ["POST", "/config_dump", 405, "GET"],
  ["DELETE", "/config_dump", 405, "GET"],
  ["OPTIONS", "/config_dump", 405, "GET"],
  ["GET", "/quitquitquit", 405, "POST"],
  ["PUT", "/logging", 405, "GET, POST"],
  ["GET", "/logging?level=debug", 405, "POST"],
  ["POST", "/metrics", 405, "GET"],
  ["GET", "/nothing", 404, null],
  ["GET", "//", 404, null],
  ["GET", "/config_dump/", 404, null],
  ["GET", "/healthz/live/../../config_dump", 400, null],
  ["GET", "/", 200, null],
];
test("methods and paths: what is not there is 404, what is there says what it takes [N2] [S4.2-11]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  for (const [method, path, status, allow] of methods) {
    const answer = await rawRequest(
      portOf(gateway.adminUrl),
      `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
    );
    assert.equal(answer.status, status, `${method} ${path}`);
    assert.equal(/^allow: (.*)\r$/m.exec(answer.text)?.[1] ?? null, allow, `${method} ${path}`);
    assert.match(answer.text, /x-content-type-options: nosniff/);
  }
  assert.ok(!gateway.log().some((line) => line.includes("failed")), gateway.log().join("\n"));
});

const REJECTED_HEADS: readonly (readonly [name: string, head: string, status: number])[] = [
  ["an unknown method", "GETX / HTTP/1.1\r\nhost: localhost\r\n\r\n", 400],
  ["a control character", "GET / HTTP/1.1\r\nhost: localhost\r\nx: a\u0001\r\n\r\n", 400],
  ["a space in a header name", "GET / HTTP/1.1\r\nhost: localhost\r\nx y: a\r\n\r\n", 400],
  ["a head of 9 KB", `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${"a".repeat(9_000)}\r\n\r\n`, 431],
  ["an unknown expectation", "GET / HTTP/1.1\r\nhost: localhost\r\nexpect: x\r\n\r\n", 417],
  ["TRACE with an unknown expectation", "TRACE / HTTP/1.1\r\nhost: localhost\r\nexpect: x\r\n\r\n", 405],
];

test("rejected heads get the status that listeners respond with [N1]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  for (const [name, head, status] of REJECTED_HEADS) {
    const client = openRawClient(portOf(gateway.adminUrl));
    client.write(head);
    assert.match(await client.until("\r\n\r\n"), new RegExp(`^HTTP/1\\.1 ${status} `), name);
    client.close();
  }
});

test("the data plane does not lead to the admin interface [N5]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  for (const path of ["/config_dump", "/debug/trace", "/quitquitquit", "/metrics", "/logging"])
    assert.equal((await fetch(gateway.url() + path)).status, 404);
});

test("/logging reads and sets the filter, and refuses nonsense [N4] [S4.2-3]", async (t) => {
  const gateway = await gatewayFor(
    t,
    "gateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: {} } }]\n",
  );
  const logging = async (method: string, query = ""): Promise<[number, string]> => {
    const response = await fetch(`${gateway.adminUrl}/logging${query}`, { method });
    return [response.status, await response.text()];
  };
  assert.deepEqual(await logging("GET"), [200, "current log level is info\n"]);
  assert.deepEqual(await logging("POST", "?level=warn,access%3Doff"), [200, "current log level is warn,access=off\n"]);
  assert.deepEqual(await logging("POST"), [200, "current log level is warn,access=off\n"]);
  const before = gateway.log().length;
  await fetch(gateway.url());
  assert.equal(gateway.log().length, before, "the filter works at once");
  await logging("POST", "?level=info");
  await fetch(gateway.url());
  await gateway.logged("access: request");
  for (const bad of ["loud", "info,,", "x%0aFAKE", "a b=info", "info,mcp=", `info,${"x".repeat(1100)}=info`]) {
    const [status] = await logging("POST", `?level=${bad}`);
    assert.equal(status, 400, bad);
  }
  assert.deepEqual(await logging("GET"), [200, "current log level is info\n"]);
});

test("/config_dump has the keys of the spec, what was loaded, and no secrets [S2.1-13] [S4.2-1]", async (t) => {
  const gateway = await gatewayFor(
    t,
    `config: { sensitiveHeaders: [x-secret-a] }
gateways: { default: { port: 0, policies: { requestHeaderModifier: { set: { X-Secret-A: hidden-1, x-open: shown } } } } }
routes:
  - name: web
    matches: [{ path: { exact: /a }, headers: [{ name: x-tenant, exact: blue }] }]
    policies: { transformations: { request: { set: { authorization: "'Bearer hidden-2'" } } } }
    backends: [{ host: "127.0.0.1:1", weight: 3, policies: { requestHeaderModifier: { set: { cookie: hidden-3 } } } }]
`,
  );
  const text = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  const dump = JSON.parse(text) as Record<string, unknown>;
  for (const key of [
    "binds",
    "listeners",
    "routes",
    "backends",
    "workloads",
    "services",
    "policies",
    "config",
    "version",
    "reload",
  ])
    assert.ok(key in dump, key);
  assert.doesNotMatch(text, /hidden-/);
  assert.match(text, /"x-secret-a": "<redacted>"|"X-Secret-A": "<redacted>"/);
  assert.match(text, /"x-open": "shown"/);
  const [route] = dump.routes as { name: string; matches: unknown; backends: { weight: number }[] }[];
  assert.equal(route?.name, "web");
  assert.deepEqual(route?.matches, [{ path: { exact: "/a" }, headers: [{ name: "x-tenant", exact: "blue" }] }]);
  assert.equal(route?.backends[0]?.weight, 3);
  assert.equal((dump.binds as { address: string }[])[0]?.address, `[::]:${gateway.port()}`);
});

test("/metrics is Prometheus text, and counts requests by who answered", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ name: 'we"ird', matches: [{ path: { exact: /a } }], backends: [{ host: "${backend.host}" }] }]\n`,
  );
  await (await fetch(`${gateway.url()}/a`)).text();
  await (await fetch(`${gateway.url()}/b`)).text();
  await gateway.logged("status=404");
  const text = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  for (const line of text.trimEnd().split("\n"))
    assert.match(
      line,
      /^(?:# (?:HELP|TYPE) [a-z_]+ .+|[a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (?:-?[0-9.e+-]+|NaN|\+Inf))$/,
      line,
    );
  assert.match(
    text,
    /gateway_requests_total\{gateway="default",route="we\\"ird",backend="we\\"ird\/backend0",method="GET",status="200",outcome="ok",error=""\} 1/,
  );
  assert.match(text, /gateway_requests_total\{[^}]*status="404",outcome="rejected",error="route_not_found"\} 1/);
  assert.match(text, /gateway_request_duration_seconds_bucket\{[^}]*le="\+Inf"\} 1/);
});

test("health: live and ready, on config.statsAddr too, and nothing else there", async (t) => {
  const gateway = await gatewayFor(t, "config: { statsAddr: 127.0.0.1:0 }\ngateways: { default: { port: 0 } }\n");
  for (const path of ["/healthz/live", "/healthz/ready"])
    assert.equal((await fetch(gateway.adminUrl + path)).status, 200);
  assert.equal((await fetch(`${gateway.adminUrl}/healthz`)).status, 404);
});

function overSocket(path: string, url: string): Promise<number | undefined> {
  return new Promise((resolve, reject) =>
    request({ socketPath: path, path: url, headers: { host: "anything" } }, (res) => {
      res.resume();
      resolve(res.statusCode);
    })
      .once("error", reject)
      .end(),
  );
}

function socketFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-test-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("a unix socket: for its owner only, whatever Host says, and gone at the end [N6] [S2.1-10]", async (t) => {
  const path = join(socketFolder(t), "admin.sock");
  const gateway = await startGateway(`config: { adminAddr: "unix:${path}" }\ngateways: { default: { port: 0 } }\n`);
  assert.equal(await overSocket(path, "/healthz/live"), 200);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.ok(gateway.log().some((line) => line.includes(`unix:${path}`)));
  await gateway.close();
  assert.equal(existsSync(path), false);
});

test("a stale socket file is replaced, a live one and another file are refused and left alone [R38]", async (t) => {
  const folder = socketFolder(t);
  const yaml = (name: string): string => `config: { adminAddr: "unix:${join(folder, name)}" }\n`;

  const stale = createServer().listen(join(folder, "stale.sock"));
  await new Promise((resolve) => stale.once("listening", resolve));
  // Closing would remove the file: the handle is taken away instead, as a crash does.
  const { spawnSync } = await import("node:child_process");
  stale.close();
  spawnSync(process.execPath, [
    "-e",
    `require("net").createServer().listen(${JSON.stringify(join(folder, "crashed.sock"))}, () => process.kill(process.pid, "SIGKILL"))`,
  ]);
  assert.ok(existsSync(join(folder, "crashed.sock")));
  const gateway = await startGateway(yaml("crashed.sock"));
  assert.equal(await overSocket(join(folder, "crashed.sock"), "/healthz/live"), 200);

  await assert.rejects(
    startGateway(yaml("crashed.sock")),
    /config\.adminAddr: cannot listen on unix:.*crashed\.sock: .*in use/,
  );
  assert.equal(await overSocket(join(folder, "crashed.sock"), "/healthz/live"), 200, "the owner still has it");
  await gateway.close();

  writeFileSync(join(folder, "precious"), "data");
  await assert.rejects(startGateway(yaml("precious")), /precious exists and is not a socket/);
  assert.equal(statSync(join(folder, "precious")).size, 4);
});

test("the log names the address of the web UI [S4.2-10]", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  assert.ok(gateway.log().some((line) => line.includes(`admin interface ui=${gateway.adminUrl}/ui`)));
  assert.match(gateway.adminUrl, /^http:\/\/(?:127\.0\.0\.1|localhost):\d+$/);
});

test("off means that there is none [S2.1-10] [S2.1-24]", async (t) => {
  const gateway = await gatewayFor(t, "config: { adminAddr: off }\ngateways: { default: { port: 0 } }\n");
  assert.equal(gateway.adminUrl, "");
  assert.ok(!gateway.log().some((line) => line.includes("admin interface")));
});

for (const address of [
  "localhost",
  "15000",
  ":15000",
  "unix:",
  "127.0.0.1:x",
  "http://127.0.0.1:1",
  "example.com:80",
  `unix:/${"x".repeat(200)}`,
]) {
  test(`the address ${address.slice(0, 40)} is refused at load [N6] [S2.1-10]`, async () => {
    await assert.rejects(startGateway(`config: { adminAddr: "${address}" }\n`), /config\.adminAddr: expected ip:port/);
  });
}
