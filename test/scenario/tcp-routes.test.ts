/**
 * `tcpRoutes` of a standalone configuration: connections by port or server name, and PROXY protocol headers from and to
 * other programs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { formatProxyHeader } from "../../src/http/proxy-protocol.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { ask, echo, plain, tls } from "../support/tcp-connections.ts";
import { certificates } from "../support/tls/certificates.ts";

const V1 = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
const V2 = formatProxyHeader({
  source: { address: "2001:db8::7", port: 4711 },
  destination: { address: "2001:db8::1", port: 443 },
});
const TRUSTED = "config: { trustedProxies: [127.0.0.1] }\n";
const FILES = { "cert.pem": certificates.server.cert, "key.pem": certificates.server.key };

/** Starts TLS on a connection after other bytes. */
function tlsAfter(port: number, bytes: Buffer | string, servername: string): Promise<string> {
  const socket = plain(port);
  socket.on("error", () => undefined);
  socket.write(bytes);
  return ask(connectTls({ socket, ...{ allowHalfOpen: true }, rejectUnauthorized: false, servername }));
}

test("a TCP gateway forwards connections by weight, and logs each one", async (t) => {
  const [one, two] = [await echo(t, "one"), await echo(t, "two")];
  const gateway = await gatewayFor(
    t,
    `gateways: { web: { port: 0 }, db: { port: 0, protocol: TCP } }
tcpRoutes: [{ name: postgres, backends: [{ host: "${one}", weight: 3 }, { host: "${two}", weight: 1 }] }]
routes: [{ policies: { directResponse: { status: 200, body: web } } }]
`,
    { random: () => 0.8 },
  );
  assert.equal(await ask(plain(gateway.port("db"))), "two:hello");
  assert.equal(await (await fetch(gateway.url("web"))).text(), "web");
  const line = await gateway.logged("connection gateway=db");
  assert.match(line, /route=postgres backend=127\.0\.0\.1:\d+ src=127\.0\.0\.1:\d+ durationMs=\d+ bytesReceived=5/);
  assert.match(line, /bytesSent=9/);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(
    metrics,
    /^gateway_tcp_connections_total\{gateway="db",route="postgres",backend="[^"]+",result="forwarded"\} 1$/m,
  );
  assert.match(metrics, /^gateway_tcp_bytes_total\{gateway="db",route="postgres",direction="received"\} 5$/m);
  assert.match(metrics, /^gateway_tcp_bytes_total\{gateway="db",route="postgres",direction="sent"\} 9$/m);
  assert.match(metrics, /^gateway_connections\{gateway="db"\} 0$/m);
});

test("a TLS gateway selects the route by server name, and passes TLS through", async (t) => {
  const [one, other, wild] = [await echo(t, "one", true), await echo(t, "other", true), await echo(t, "wild", true)];
  const routes = `tcpRoutes:
  - { hostnames: [One.test], backends: [{ host: "${one}" }] }
  - { hostnames: ["*.wild.test"], backends: [{ host: "${wild}" }] }
`;
  const start = "gateways: { secure: { port: 0, protocol: TLS } }\n";
  const gateway = await gatewayFor(t, start + routes);
  const port = gateway.port();
  assert.equal(await ask(tls(port, "ONE.test")), "one:hello");
  assert.equal(await ask(tls(port, "a.b.wild.test")), "wild:hello");
  assert.equal(await ask(tls(port, "wild.test")), "refused");
  assert.match(await gateway.logged("serverName=wild.test"), /reason="no route has this server name"/);
  assert.equal(await ask(plain(port), "GET / HTTP/1.1\r\n\r\n"), "refused");
  assert.equal(await gateway.reload(`${start}${routes}  - { backends: [{ host: "${other}" }] }\n`), "loaded");
  assert.equal(await ask(tls(port, "wild.test")), "other:hello");
  assert.equal(await ask(tls(port, "one.test")), "one:hello");
});

test("a TLS gateway with a certificate terminates TLS", async (t) => {
  const one = await echo(t, "one");
  const gateway = await gatewayFor(
    t,
    `gateways: { secure: { port: 0, protocol: TLS, tls: { cert: cert.pem, key: key.pem } } }
tcpRoutes: [{ hostnames: [backend.test], backends: [{ host: "${one}" }] }]
`,
    { files: FILES },
  );
  assert.equal(await ask(tls(gateway.port(), "backend.test")), "one:hello");
  assert.equal(await ask(tls(gateway.port(), "other.test")), "refused");
});

for (const [name, yaml, expected] of [
  [
    "an HTTP route on a TCP gateway",
    "gateways: { a: { port: 0, protocol: TCP } }\nroutes: [{ gateways: a, backends: [{ host: a:1 }] }]",
    /routes\[0\]\.gateways: the gateway "a" has `protocol: TCP`: write an entry of `tcpRoutes`/,
  ],
  [
    "a section on a TCP gateway",
    "gateways: { a: { port: 0, protocol: TLS } }\nllm: { gateway: a, models: [{ name: a, provider: demo }] }",
    /llm\.gateway: the gateway "a" has `protocol: TLS`/,
  ],
  [
    "a connection route on an HTTP gateway",
    "gateways: { a: { port: 0 } }\ntcpRoutes: [{ gateways: a, backends: [{ host: a:1 }] }]",
    /tcpRoutes\[0\]\.gateways: the gateway "a" serves HTTP/,
  ],
  [
    "server names without TLS",
    "gateways: { a: { port: 0, protocol: TCP } }\ntcpRoutes: [{ hostnames: [a.test], backends: [{ host: a:1 }] }]",
    /tcpRoutes\[0\]\.hostnames: the gateway "a" has `protocol: TCP`, without server names/,
  ],
  [
    "two routes for all connections",
    "gateways: { a: { port: 0, protocol: TCP } }\ntcpRoutes: [{ backends: [{ host: a:1 }] }, { backends: [{ host: a:2 }] }]",
    /tcpRoutes\[1\]: the route "tcpRoute0" already serves all other connections of the gateway "a"/,
  ],
  [
    "two routes for one name",
    "gateways: { a: { port: 0, protocol: TLS } }\ntcpRoutes: [{ hostnames: [a.test], backends: [{ host: a:1 }] }, { hostnames: [A.test], backends: [{ host: a:2 }] }]",
    /tcpRoutes\[1\]\.hostnames: the route "tcpRoute0" already serves one of these names/,
  ],
  [
    "policies of a gateway without HTTP",
    "gateways: { a: { port: 0, protocol: TCP, policies: { timeout: { requestTimeout: 1s } } } }",
    /gateways\.a\.policies: policies apply to HTTP requests/,
  ],
  [
    "certificates without TLS",
    "gateways: { a: { port: 0, protocol: TCP, tls: { cert: a, key: b } } }",
    /gateways\.a\.tls: `protocol: HTTPS` and `tls` must be set together/,
  ],
  [
    "a URL as the server",
    "gateways: { a: { port: 0, protocol: TCP } }\ntcpRoutes: [{ backends: [{ host: 'https://a.test' }] }]",
    /tcpRoutes\[0\]\.backends\[0\]\.host: expected host:port/,
  ],
  [
    "PROXY protocol without trusted peers",
    "gateways: { a: { port: 0, proxyProtocol: {} } }",
    /gateways\.a\.proxyProtocol: list the addresses of the load balancers in `config\.trustedProxies`/,
  ],
] as const) {
  test(`rejected at load: ${name}`, async () => {
    await assert.rejects(startGateway(yaml), expected);
  });
}

test("a policy document for a gateway that forwards connections closes it", async (t) => {
  const one = await echo(t, "one");
  const gateway = await gatewayFor(
    t,
    `gateways: { db: { port: 0, protocol: TCP } }
tcpRoutes: [{ backends: [{ host: "${one}" }] }]
---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: strict }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: Gateway, name: db }]
  traffic: { authorization: { rules: ["true"] } }
`,
  );
  assert.equal(await ask(plain(gateway.port())), "refused");
});

test("the header of a trusted peer is removed, and version 2 carries the client to the server", async (t) => {
  const [one, two] = [await echo(t, "one"), await echo(t, "two")];
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways:
  in: { port: 0, protocol: TCP, proxyProtocol: {} }
  out: { port: 0, protocol: TCP, proxyProtocol: { mode: optional, version: v2 } }
tcpRoutes:
  - { gateways: in, backends: [{ host: "${one}" }] }
  - { gateways: out, backends: [{ host: "${two}", proxyProtocol: v2 }] }
`,
  );
  const [into, out] = [gateway.port("in"), gateway.port("out")];
  assert.equal(await ask(plain(into), `${V1}hello`), "one:hello");
  assert.equal(await ask(plain(into), Buffer.concat([V2, Buffer.from("hello")])), "one:hello");
  assert.match(await gateway.logged("client=192.0.2.7"), /gateway=in/);
  assert.equal(await ask(plain(into), "hello"), "refused");
  assert.equal(await ask(plain(into), "PROXY TCP4 x\r\n"), "refused");
  assert.equal(await ask(plain(out), Buffer.concat([V2, Buffer.from("hi")])), `two:${V2.toString("latin1")}hi`);
  assert.equal(await ask(plain(out), `${V1}hi`), "refused");
  const client = plain(out);
  await new Promise((resolve) => client.once("connect", resolve));
  const own = formatProxyHeader({
    source: { address: "127.0.0.1", port: client.localPort ?? 0 },
    destination: { address: "127.0.0.1", port: out },
  });
  assert.equal(await ask(client, "hi"), `two:${own.toString("latin1")}hi`);
});

test("a header in single bytes is read, and the server name after it", async (t) => {
  const one = await echo(t, "one", true);
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways: { secure: { port: 0, protocol: TLS, proxyProtocol: {} } }
tcpRoutes: [{ hostnames: [one.test], backends: [{ host: "${one}" }] }]
`,
  );
  assert.equal(await tlsAfter(gateway.port(), V2, "one.test"), "one:hello");
  assert.equal(await tlsAfter(gateway.port(), V2, "two.test"), "refused");
  const slow = plain(gateway.port());
  slow.setNoDelay(true);
  for (const byte of V2.subarray(0, 30)) {
    slow.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
  slow.write(V2.subarray(30));
  const options = { socket: slow, allowHalfOpen: true, rejectUnauthorized: false, servername: "one.test" };
  assert.equal(await ask(connectTls(options)), "one:hello");
});

test("HTTP and HTTPS gateways read the client's address, and ignore its forwarding headers", async (t) => {
  const backend = await backendFor(t, (request, response) => {
    response.end(`${request.headers["x-forwarded-for"]} ${request.headers["x-client"]}`);
  });
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways:
  plain: { port: 0, proxyProtocol: {} }
  secure: { port: 0, proxyProtocol: {}, protocol: HTTPS, tls: { cert: cert.pem, key: key.pem } }
routes:
  - gateways: [plain, secure]
    policies: { transformations: { request: { set: { x-client: client.address + " " + source.address } } } }
    backends: [{ host: "${backend.host}" }]
`,
    { files: FILES },
  );
  const request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n";
  const expected = /\r\n\r\n192\.0\.2\.7, 127\.0\.0\.1 192\.0\.2\.7 127\.0\.0\.1$/;
  assert.match(await ask(plain(gateway.port("plain")), V1 + request, true), expected);
  const split = plain(gateway.port("plain"));
  split.write(V1);
  await new Promise((resolve) => setImmediate(resolve));
  assert.match(await ask(split, request, true), expected);
  const secured = plain(gateway.port("secure"));
  secured.write(V1);
  assert.match(await ask(connectTls({ socket: secured, rejectUnauthorized: false }), request, true), expected);
  assert.equal(await ask(plain(gateway.port("plain")), request), "refused");
  assert.match(await gateway.logged("PROXY protocol"), /reason="absent header"/);
});

test("a load balancer's own connection has no client, and its forwarding headers are not trusted", async (t) => {
  const backend = await backendFor(t, (request, response) => response.end(String(request.headers["x-forwarded-for"])));
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways: { a: { port: 0, proxyProtocol: {} } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
  const request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n";
  assert.match(await ask(plain(gateway.port()), `PROXY UNKNOWN\r\n${request}`, true), /\r\n\r\n127\.0\.0\.1$/);
});

test("headers of other peers are not read", async (t) => {
  const one = await echo(t, "one");
  const gateway = await gatewayFor(
    t,
    `config: { trustedProxies: [192.0.2.1] }
gateways:
  strict: { port: 0, protocol: TCP, proxyProtocol: {} }
  lenient: { port: 0, protocol: TCP, proxyProtocol: { mode: optional } }
  web: { port: 0, proxyProtocol: { mode: optional } }
tcpRoutes: [{ gateways: [strict, lenient], backends: [{ host: "${one}" }] }]
routes: [{ policies: { directResponse: { status: 200, body: web } } }]
`,
  );
  assert.equal(await ask(plain(gateway.port("strict")), `${V1}hello`), "refused");
  assert.equal(await ask(plain(gateway.port("lenient")), `${V1}hello`), `one:${V1}hello`);
  assert.match(await ask(plain(gateway.port("web")), `${V1}GET / HTTP/1.1\r\nHost: a\r\n\r\n`), /^HTTP\/1\.1 400 /);
  assert.match(await gateway.logged("PROXY protocol"), /reason="the peer is not in config.trustedProxies"/);
});

test("a second stop closes open connections without waiting", async (t) => {
  const one = await echo(t, "one");
  const gateway = await startGateway(
    `gateways: { db: { port: 0, protocol: TCP } }\ntcpRoutes: [{ backends: [{ host: "${one}" }] }]\n`,
    { clock: fakeClock() },
  );
  const open = plain(gateway.port());
  open.on("error", () => undefined);
  const closed = new Promise((resolve) => open.once("close", resolve));
  await new Promise((resolve) => open.once("data", resolve));
  await gateway.close();
  open.end();
  await closed;
});

test("connections that wait for a header are closed when the gateway stops", async (t) => {
  const gateway = await startGateway(
    `${TRUSTED}gateways: { a: { port: 0, proxyProtocol: {} } }\nroutes: [{ policies: { directResponse: { status: 200 } } }]\n`,
  );
  const waiting = plain(gateway.port());
  t.after(() => waiting.destroy());
  waiting.on("error", () => undefined);
  const closed = new Promise((resolve) => waiting.once("close", resolve));
  await new Promise((resolve) => waiting.write("PROXY", resolve));
  await gateway.close();
  waiting.end();
  await closed;
});
