/**
 * The safe edge: what no server should pass on is refused with a readable answer, the
 * connection is closed, and the backend sees nothing.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";

let backend: TestBackend;
let gateway: TestGateway;

before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: direct
    matches: [{ path: { pathPrefix: /direct } }]
    policies: { directResponse: { body: hello } }
  - name: all
    backends: [{ host: ${backend.host} }]
`);
});
after(async () => {
  await gateway.close();
  await backend.close();
});

const get = (...headers: string[]): string => requestText("GET / HTTP/1.1", headers);
const post = (headers: string[], body: string): string => requestText("POST / HTTP/1.1", headers, body);
const line = (target: string): string => requestText(`GET ${target} HTTP/1.1`);
const chunk = "5\r\nhello\r\n0\r\n\r\n";
const many = (count: number): string[] => Array.from({ length: count }, (_, i) => `x-${i}: 1`);

const refused: readonly [name: string, bytes: string, status: number | readonly number[]][] = [
  // Refused by the parser.
  ["content-length and transfer-encoding [L1]", post(["Content-Length: 5", "Transfer-Encoding: chunked"], chunk), 400],
  ["two content-lengths [L1]", post(["Content-Length: 5", "Content-Length: 6"], "hello"), 400],
  ["two content-lengths of different case [L1] [V19]", post(["Content-Length: 5", "content-length: 6"], "hello"), 400],
  ["a list as content-length [L1]", post(["Content-Length: 2, 2"], "he"), 400],
  ["a signed content-length [L1]", post(["Content-Length: +2"], "he"), 400],
  ["an empty content-length [L1]", post(["Content-Length:"], ""), 400],
  ["a huge content-length [L1]", post(["Content-Length: 99999999999999999999"], ""), 400],
  ["transfer-encoding xchunked [L1]", post(["Transfer-Encoding: xchunked"], chunk), 400],
  ["transfer-encoding chunked, gzip [L1]", post(["Transfer-Encoding: chunked, gzip"], chunk), 400],
  ["two transfer-encodings [L1]", post(["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], chunk), 400],
  ["a vertical tab in transfer-encoding [L1]", post(["Transfer-Encoding: \x0bchunked"], chunk), 400],
  ["a space before the colon [L1]", get("X-A : 1"), 400],
  ["bare line feeds [L1]", "GET / HTTP/1.1\nHost: a\nConnection: close\n\n", 400],
  ["a bare carriage return [L1]", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400],
  ["a folded header [L1]", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400],
  ["a NUL in a header [L1]", get("X: a\0b"), 400],
  ["no Host [L1]", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
  ["an empty Host [L1]", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", 400],
  ["a chunk size of 0x1 [L1]", post(["Transfer-Encoding: chunked"], "0x1\r\na\r\n0\r\n\r\n"), 400],
  ["a chunk that ends with a line feed alone [L1]", post(["Transfer-Encoding: chunked"], "1\na\n0\n\n"), 400],
  [
    "a chunk size beyond all numbers [L1]",
    post(["Transfer-Encoding: chunked"], `${"f".repeat(17)}\r\na\r\n0\r\n\r\n`),
    400,
  ],
  [
    "a chunk extension of 20 KB [L1] [V18]",
    post(["Transfer-Encoding: chunked"], `1;${"a".repeat(20_000)}\r\na\r\n0\r\n\r\n`),
    [400, 413],
  ],
  ["a control character in the path [L1]", line("/a\x01b"), 400],
  ["a non-ASCII byte in the path [L1]", line("/a\xffb"), 400],
  ["an unknown method [L1]", requestText("BREW / HTTP/1.1"), 400],
  ["a method in lower case [L1]", requestText("get / HTTP/1.1"), 400],
  ["HTTP/0.9 [L6]", "GET /\r\n\r\n", [400, 505]],
  ["an HTTP/2.0 request line [L6]", requestText("GET / HTTP/2.0"), [400, 505]],
  ["an HTTP/1.2 request line [L6]", requestText("GET / HTTP/1.2"), [400, 505]],
  ["what only looks like the HTTP/2 preface [L6]", "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", [400, 505]],
  ["17 KB of headers [L11]", get(`X: ${"a".repeat(17_000)}`), 431],
  // Let through by the parser, refused by us (fact 1, second half, and fact 2).
  ["transfer-encoding gzip, chunked [L2]", post(["Transfer-Encoding: gzip, chunked"], chunk), 400],
  ["transfer-encoding identity [L2]", post(["Transfer-Encoding: identity"], ""), 400],
  ["transfer-encoding on HTTP/1.0 [L2]", requestText("POST / HTTP/1.0", ["Transfer-Encoding: chunked"], chunk), 400],
  ["two Hosts [L3]", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400],
  ["two equal Hosts [L3]", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400],
  ["two Authorizations [L3]", get("Authorization: Bearer a", "authorization: Bearer b"), 400],
  ["two Content-Types [L3]", post(["Content-Type: a/b", "Content-Type: c/d", "Content-Length: 0"], ""), 400],
  ["two Origins [L3]", get("Origin: http://a", "Origin: http://b"), 400],
  ["two Mcp-Session-Ids [L3]", get("Mcp-Session-Id: a", "Mcp-Session-Id: b"), 400],
  ["two MCP-Protocol-Versions [L3]", get("MCP-Protocol-Version: 1", "MCP-Protocol-Version: 2"), 400],
  ["an absolute target that disagrees with Host [L4]", line("http://evil.test/x"), 400],
  ["an absolute target with user information [L4]", line("http://gateway.test@evil.test/"), 400],
  ["an absolute target of another scheme", line("ftp://gateway.test/"), 400],
  ["a target without a slash", line("x/y"), 400],
  ["an underscored forwarded header [L12] [V13]", get("X_Forwarded_User: admin"), 400],
  ["an underscored header of mixed form [L12] [V13]", get("X-Forwarded_For: 1.2.3.4"), 400],
  ["an underscored authorization [L12] [V13]", get("Proxy_Authorization: x"), 400],
  ["TRACE [L6]", requestText("TRACE / HTTP/1.1"), 405],
  ["CONNECT [L6]", requestText("CONNECT evil.test:443 HTTP/1.1"), 405],
  ["101 headers [L11]", get(...many(99)), 431],
  ["1,500 headers [L11]", get(...many(1500)), 431],
  ["another expectation", post(["Expect: magic", "Content-Length: 2"], "ab"), 417],
  ["a dot segment [L5]", line("/a/../b"), 400],
  ["a dot segment at the end", line("/a/.."), 400],
  ["a single dot segment", line("/a/./b"), 400],
  ["an encoded dot segment [L5]", line("/a/%2e%2e/b"), 400],
  ["a half encoded dot segment", line("/a/.%2E/b"), 400],
  ["a dot segment between encoded slashes", line("/a%2f..%2fb"), 400],
  ["a dot segment after an encoded backslash", line("/a%5c..%5cb"), 400],
  ["a single dot before an encoded slash", line("/a/.%2fb"), 400],
  ["a single dot with a path parameter", line("/.;x=1/b"), 400],
  ["a dot segment with a path parameter", line("/a/..;x=1/b"), 400],
  ["a backslash [L5]", line("/a\\b"), 400],
  ["a NUL in the path [L5]", line("/a%00b"), 400],
  ["an incomplete escape", line("/a%2"), 400],
  ["a fragment", line("/a#b"), 400],
  ["a target of 9 KB", line(`/${"a".repeat(9_000)}`), 400],
  ["a path in Host [V4]", "GET / HTTP/1.1\r\nHost: x/health?\r\n\r\n", 400],
  ["a fragment in Host [V4]", "GET / HTTP/1.1\r\nHost: x#\r\n\r\n", 400],
  ["user information in Host [V4]", "GET / HTTP/1.1\r\nHost: x@y\r\n\r\n", 400],
  ["a space in Host [V4]", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400],
  ["a comma in Host [V4]", "GET / HTTP/1.1\r\nHost: x,y\r\n\r\n", 400],
];

for (const [name, bytes, status] of refused) {
  test(`refuses ${name}`, async () => {
    const before = backend.received.length;
    const answer = await rawRequest(gateway.port(), Buffer.from(bytes, "latin1"));
    const wanted = typeof status === "number" ? [status] : status;
    assert.ok(wanted.includes(answer.status), `${answer.status}: ${answer.text}`);
    assert.equal(answer.errors.length, 1, answer.text);
    assert.equal(answer.statuses.length, 1, "one answer, then the end");
    assert.equal(backend.received.length, before, "the backend saw nothing");
  });
}

const accepted: readonly [name: string, bytes: string, seen: { url?: string; header?: [string, string] }][] = [
  ["100 headers [L11]", get(...many(98)), { header: ["x-97", "1"] }],
  ["HTTP/1.0", requestText("GET /old HTTP/1.0"), { url: "/old" }],
  ["HTTP/1.0 without Host", "GET /older HTTP/1.0\r\n\r\n", { url: "/older" }],
  [
    "an expectation on HTTP/1.0, which is ignored",
    requestText("POST /e HTTP/1.0", ["Expect: 100-continue", "Content-Length: 2"], "ab"),
    { url: "/e" },
  ],
  ["an absolute target that agrees with Host", line("http://GATEWAY.test/abs?x=1"), { url: "/abs?x=1" }],
  ["dots that are no segment", line("/a..b/...c/.d?e=../f"), { url: "/a..b/...c/.d?e=../f" }],
  ["an encoded slash on an open route", line("/a%2fb"), { url: "/a%2Fb" }],
  ["a doubled slash, forwarded as one", line("//a//b"), { url: "/a/b" }],
  ["an underscored header of nobody's", get("x_custom: 1"), { header: ["x_custom", "1"] }],
  ["a header named __proto__ [V18]", get("__proto__: x", "constructor: y"), { header: ["constructor", "y"] }],
  ["a body on GET", requestText("GET /b HTTP/1.1", ["Content-Length: 2"], "ab"), { url: "/b" }],
  [
    "a chunk extension",
    requestText("POST /c HTTP/1.1", ["Transfer-Encoding: chunked"], "2;a=b\r\nab\r\n0\r\n\r\n"),
    { url: "/c" },
  ],
  [
    "chunked in capitals",
    requestText("POST /d HTTP/1.1", ["Transfer-Encoding: CHUNKED"], "2\r\nab\r\n0\r\n\r\n"),
    { url: "/d" },
  ],
];
for (const [name, bytes, seen] of accepted) {
  test(`accepts ${name}`, async () => {
    const answer = await rawRequest(gateway.port(), Buffer.from(bytes, "latin1"));
    assert.equal(answer.status, 200, answer.text);
    const request = backend.received.at(-1);
    if (seen.url !== undefined) assert.equal(request?.url, seen.url);
    if (seen.header) assert.ok(headerValues(request?.rawHeaders ?? [], seen.header[0]).includes(seen.header[1]));
  });
}

const headRequests: readonly [name: string, bytes: string, status: number][] = [
  ["too large", requestText("HEAD / HTTP/1.1", [`X-Long: ${"a".repeat(17_000)}`]), 431],
  ["malformed", requestText("HEAD / HTTP/1.1", ["X-A : 1"]), 400],
  ["with too many lines", requestText("HEAD / HTTP/1.1", many(101)), 431],
  ["with a malformed body", requestText("HEAD / HTTP/1.1", ["Transfer-Encoding: chunked"], "zz\r\n"), 400],
];
for (const [name, bytes, status] of headRequests) {
  test(`the response to a HEAD request that is ${name} has no body`, async () => {
    const answer = await rawRequest(gateway.port(), Buffer.from(bytes, "latin1"));
    assert.equal(answer.status, status);
    assert.ok(answer.text.endsWith("\r\n\r\n"), answer.text);
  });
}

test("OPTIONS * is answered or refused, and never breaks the gateway", async () => {
  const answer = await rawRequest(gateway.port(), requestText("OPTIONS * HTTP/1.1"));
  assert.ok(answer.status === 200 || answer.status === 400, answer.text);
});

test("a refused request does not let the request that was sent behind it through [L1] [V20]", async () => {
  const before = backend.received.length;
  const first =
    "POST /first HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nAuthorization: y\r\nContent-Length: 5\r\n\r\nhello";
  const second = requestText("GET /second HTTP/1.1");
  const answer = await rawRequest(gateway.port(), first + second);
  assert.deepEqual(answer.statuses, [400]);
  assert.equal(backend.received.length, before, "neither reached the backend");
});

test("requests sent one behind the other are answered in order, one at a time", async () => {
  let open = 0;
  let most = 0;
  const slow = await startBackend((req, res) => {
    open += 1;
    most = Math.max(most, open);
    setTimeout(() => {
      open -= 1;
      res.end(req.url);
    }, 10);
  });
  const own = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${slow.host}" }] }]`,
  );
  try {
    const requests = Array.from({ length: 20 }, (_, i) => `GET /${i} HTTP/1.1\r\nHost: a\r\n\r\n`).join("");
    const answer = await rawRequest(own.port(), requests + requestText("GET /last HTTP/1.1"));
    assert.equal(answer.statuses.length, 21);
    const order = [...answer.text.matchAll(/\n\/(\d+|last)/g)].map((match) => match[1]);
    assert.deepEqual(order, [...Array.from({ length: 20 }, (_, i) => String(i)), "last"]);
    assert.equal(most, 1, "one client connection never occupies more than one backend connection");
  } finally {
    await own.close();
    await slow.close();
  }
});

test("what is refused at the edge is in the log, the metrics and the recent requests, by its id", async () => {
  const answer = await rawRequest(gateway.port(), requestText("GET /a/../secret?key=s3cret HTTP/1.1"));
  assert.equal(answer.status, 400);
  const id = /x-request-id: (\w+)/.exec(answer.text)?.[1] ?? "";
  const line = await gateway.logged(`id=${id}`);
  assert.match(
    line,
    /path=\/a\/..\/secret status=400 .*error=bad_request .*reason="bad request: a dot segment in the path"/,
  );
  const { requests } = (await (await fetch(`${gateway.adminUrl}/debug/requests?id=${id}`)).json()) as {
    requests: { failure: { message: string }; path: string; route: null }[];
  };
  assert.equal(requests[0]?.failure.message, "bad request: a dot segment in the path");
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(
    metrics,
    /gateway_requests_total\{[^}]*route=""[^}]*status="400",outcome="rejected",error="bad_request"\}/,
  );
  assert.ok(!gateway.log().join("\n").includes("s3cret"));
});

function headerValues(raw: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i < raw.length; i += 2) if (raw[i]?.toLowerCase() === name) values.push(raw[i + 1] as string);
  return values;
}
