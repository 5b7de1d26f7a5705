/**
 * Requests that are refused at the edge are traced like any other: what could be read of them, why they were refused, and
 * what the client got. No credential of theirs is shown.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { openRawClient } from "../support/raw-client.ts";
import { armTrace, messagesOf, typesOf } from "../support/trace.ts";

let backend: TestBackend;
let gateway: TestGateway;
let admin: string;
before(async () => {
  backend = await startBackend();
  gateway = await startGateway(
    `
gateways: { default: { port: 0 } }
routes: [{ backends: [{ host: "${backend.host}" }] }]
`,
  );
  admin = new URL(gateway.adminUrl).port;
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

const SECRET = "an-edge-secret-1";
const HEAD = `host: a.test\r\nx-shown: yes\r\nauthorization: Bearer ${SECRET}\r\n`;

const refused: {
  name: string;
  bytes: string;
  status: number;
  method?: string;
  path?: string;
  reason: RegExp;
  headers?: boolean;
}[] = [
  {
    name: "a dot segment",
    bytes: `GET /a/../b?access_token=${SECRET} HTTP/1.1\r\n${HEAD}\r\n`,
    status: 400,
    path: "/a/../b",
    reason: /dot segment/,
  },
  { name: "a NUL", bytes: `GET /a%00b HTTP/1.1\r\n${HEAD}\r\n`, status: 400, path: "/a%00b", reason: /NUL/ },
  {
    name: "two authorization headers",
    bytes: `GET /two HTTP/1.1\r\n${HEAD}authorization: Basic ${SECRET}\r\n\r\n`,
    status: 400,
    path: "/two",
    reason: /more than one authorization/,
  },
  {
    name: "no Host",
    bytes: `GET /nohost HTTP/1.1\r\nx-shown: yes\r\ncookie: s=${SECRET}\r\n\r\n`,
    status: 400,
    path: "/nohost",
    reason: /no Host/,
  },
  {
    name: "a header like one of ours",
    bytes: `GET /like HTTP/1.1\r\n${HEAD}x_api_key: ${SECRET}\r\n\r\n`,
    status: 400,
    path: "/like",
    reason: /could be mistaken for/,
  },
  {
    name: "a fragment",
    bytes: `GET /f#access_token=${SECRET} HTTP/1.1\r\n${HEAD}\r\n`,
    status: 400,
    path: "/f",
    reason: /fragment/,
  },
  {
    name: "a user in the target",
    bytes: `GET http://me:${SECRET}@b.test/ HTTP/1.1\r\n${HEAD}\r\n`,
    status: 400,
    reason: /disagree/,
  },
  {
    name: "TRACE",
    bytes: `TRACE /t HTTP/1.1\r\n${HEAD}\r\n`,
    status: 405,
    method: "TRACE",
    path: "/t",
    reason: /not allowed/,
  },
  {
    name: "CONNECT",
    bytes: `CONNECT a.test:443 HTTP/1.1\r\n${HEAD}\r\n`,
    status: 405,
    method: "CONNECT",
    reason: /not allowed/,
  },
  {
    name: "an unknown expectation",
    bytes: `POST /e HTTP/1.1\r\n${HEAD}expect: a-miracle\r\ncontent-length: 0\r\n\r\n`,
    status: 417,
    method: "POST",
    path: "/e",
    reason: /expect/,
  },
  {
    name: "a broken header line",
    bytes: `GET /broken HTTP/1.1\r\n${HEAD}bad header\r\n\r\n`,
    status: 400,
    path: "/broken",
    reason: /bad request/,
  },
  {
    name: "two lengths",
    bytes: `POST /both HTTP/1.1\r\n${HEAD}content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n`,
    status: 400,
    method: "POST",
    path: "/both",
    reason: /bad request/,
  },
  {
    name: "an unknown method",
    bytes: `FOO /foo HTTP/1.1\r\n${HEAD}\r\n`,
    status: 400,
    method: "",
    path: "/foo",
    reason: /bad request/,
  },
  {
    name: "no HTTP at all",
    bytes: "\x16\x03\x01\x02\x00\r\n\r\n",
    status: 400,
    method: "",
    path: "",
    reason: /bad request/,
    headers: false,
  },
  {
    name: "too large a head",
    bytes: `GET /large HTTP/1.1\r\n${HEAD}x-large: ${"x".repeat(20_000)}\r\n\r\n`,
    status: 431,
    path: "/large",
    reason: /header/,
  },
];

for (const { name, bytes, status, method = "GET", path, reason, headers = true } of refused) {
  test(`a request that is refused for ${name} is traced`, async () => {
    const trace = await armTrace(gateway);
    const raw = openRawClient(gateway.port());
    raw.write(bytes);
    const answer = await raw.ended();
    const events = await trace.events;
    assert.equal(answer.status, status);
    assert.deepEqual(typesOf(events), [
      "requestStarted",
      "requestSnapshot initial request",
      "policy gateway",
      "responseSnapshot final response",
      "bodySnapshot response",
      "requestFinished",
    ]);
    const request = messagesOf(events, "requestSnapshot")[0]?.requestState.request as {
      method: string;
      path: string;
      headers: Record<string, unknown>;
    };
    assert.equal(request.method, method);
    if (path !== undefined) assert.equal(request.path, path);
    if (headers) assert.equal(request.headers["x-shown"], "yes");
    const [verdict] = messagesOf(events, "policy");
    assert.deepEqual([verdict?.kind, verdict?.result], ["edge", "refused"]);
    assert.match(verdict?.details ?? "", reason);
    assert.equal(messagesOf(events, "requestFinished")[0]?.status, status);
    assert.ok(!JSON.stringify(events).includes(SECRET));
    const recent = (await (await fetch(`${gateway.adminUrl}/debug/requests`)).text()).includes(SECRET);
    assert.equal(recent, false);
  });
}

const injected = [
  { name: "a dot segment", args: ["http://a.test/a/../b", "--path-as-is"] },
  { name: "no Host", args: ["http://a.test/", "-H", "Host:"] },
  { name: "TRACE", args: ["http://a.test/", "-X", "TRACE"] },
  { name: "two authorization headers", args: ["http://a.test/", "-H", "authorization: a", "-H", "authorization: b"] },
  { name: "a URL of the other scheme", args: ["https://a.test/ok"] },
];
for (const { name, args } of injected) {
  test(`gwctl injects a request with ${name}, shows its trace and ends with 0`, async () => {
    const port = String(gateway.port());
    const result = await gwctl(["proxy", "trace", "--local", "--raw", "-p", admin, "--port", port, "--", ...args]);
    assert.equal(result.code, 0, result.stderr);
    assert.match(result.stdout, /"requestFinished"/);
    if (name.includes("scheme")) assert.match(result.stdout, /"host":"a\.test"/);
    else assert.match(result.stdout, /"kind":"edge"/);
  });
}

test("a request that is refused because memory is short is traced", async () => {
  const clock = fakeClock();
  let usedBytes = 10;
  const full = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
    { clock, heapSize: () => ({ usedBytes, limitBytes: 100 }) },
  );
  try {
    const trace = await armTrace(full);
    usedBytes = 95;
    await clock.advance(250);
    const raw = openRawClient(full.port());
    raw.write(`GET /full HTTP/1.1\r\n${HEAD}\r\n`);
    assert.equal((await raw.ended()).status, 503);
    const events = await trace.events;
    assert.deepEqual(
      messagesOf(events, "policy").map(({ kind, result }) => [kind, result]),
      [["edge", "refused"]],
    );
    assert.equal(messagesOf(events, "requestFinished")[0]?.status, 503);
  } finally {
    await full.close();
  }
});
