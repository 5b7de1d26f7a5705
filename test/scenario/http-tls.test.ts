/**
 * TLS on both sides: HTTPS listeners, and backends with `backendTLS`.
 */
import assert from "node:assert/strict";
import { createServer, request, type ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import type { TLSSocket } from "node:tls";
import { startGateway } from "../support/gateway.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

const files = {
  "root.pem": certificates.root,
  "server.pem": certificates.server.cert,
  "server.key.pem": certificates.server.key,
  "client.pem": certificates.client.cert,
  "client.key.pem": certificates.client.key,
};

async function tlsBackend(t: TestContext, options: ServerOptions = {}): Promise<number> {
  const server = createServer({ ...certificates.server, ...options }, (req, res) => {
    const { subject } = (req.socket as TLSSocket).getPeerCertificate();
    res.end(
      JSON.stringify({
        servername: (req.socket as TLSSocket & { servername?: string }).servername,
        client: subject?.CN ?? null,
        host: req.headers.host,
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

const route = (host: string, tls: string): string =>
  `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${host}" }]${tls === "" ? "" : `, policies: { backendTLS: { ${tls} } }`} }]\n`;

const reached: [name: string, scheme: string, tls: string, seen: object][] = [
  ["the root is given", "https://localhost", "root: root.pem", { servername: "localhost" }],
  ["the policy alone makes a host:port TLS", "localhost", "root: root.pem", { servername: "localhost" }],
  ["the backend is named by its address", "127.0.0.1", "root: root.pem", {}],
  ["another name is asked for", "127.0.0.1", "root: root.pem, hostname: backend.test", { servername: "backend.test" }],
  [
    "its certificate has one of the names",
    "127.0.0.1",
    "root: root.pem, hostname: asked.test, subjectAltNames: [other.test, backend.test]",
    { servername: "asked.test" },
  ],
  ["anything is accepted", "https://localhost", "insecure: true", { servername: "localhost" }],
];
for (const [name, host, tls, seen] of reached) {
  test(`a TLS backend is reached when ${name}`, async (t) => {
    const port = await tlsBackend(t);
    const gateway = await gatewayFor(t, route(`${host}:${port}`, tls), { files });
    const response = await fetch(gateway.url());
    assert.equal(response.status, 200, await response.clone().text());
    const body = (await response.json()) as Record<string, unknown>;
    for (const [key, value] of Object.entries(seen)) assert.equal(body[key], value);
  });
}

const notReached: [name: string, host: string, tls: string][] = [
  ["its root is not trusted", "https://localhost", ""],
  [
    "its certificate has none of the names",
    "localhost",
    "root: root.pem, subjectAltNames: [other.test, 'spiffe://localhost']",
  ],
  ["its certificate carries another name", "127.0.0.1", "root: root.pem, hostname: other.test"],
];
for (const [name, host, tls] of notReached) {
  test(`a TLS backend is 502 when ${name}`, async (t) => {
    const port = await tlsBackend(t);
    const gateway = await gatewayFor(t, route(`${host}:${port}`, tls), { files });
    const response = await fetch(gateway.url());
    assert.equal(response.headers.get("x-gateway-error"), "backend_unavailable");
  });
}

test("a client certificate is presented to the backend that asks for one", async (t) => {
  const port = await tlsBackend(t, { requestCert: true, ca: certificates.root });
  const gateway = await gatewayFor(
    t,
    route(`localhost:${port}`, "root: root.pem, cert: client.pem, key: client.key.pem"),
    { files },
  );
  assert.equal(((await (await fetch(gateway.url())).json()) as { client: string }).client, "client.test");
});

test("a plain backend behind https:// is 502", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, route(`https://${backend.host}`, "insecure: true"));
  assert.equal((await fetch(gateway.url())).status, 502);
  assert.match(
    await gateway.logged("status=502"),
    /the server responds without TLS: use http:\/\/ instead of https:\/\//,
  );
});

const badTls: [name: string, yaml: string, message: RegExp][] = [
  [
    "a certificate file that is none",
    "gateways: { default: { port: 0, protocol: HTTPS, tls: { cert: bad.pem, key: server.key.pem } } }",
    /config\.yaml:1:\d+: gateways\.default\.tls: .*PEM/,
  ],
  [
    "a key of another certificate",
    "gateways: { default: { port: 0, protocol: HTTPS, tls: { cert: server.pem, key: client.key.pem } } }",
    /gateways\.default\.tls: .*do they match.*mismatch/,
  ],
  [
    "a certificate file that is not there",
    "gateways: { default: { port: 0, protocol: HTTPS, tls: { cert: none.pem, key: server.key.pem } } }",
    /gateways\.default\.tls\.cert: cannot read .*none\.pem: ENOENT/,
  ],
  [
    "HTTPS without tls",
    "gateways: { default: { port: 0, protocol: HTTPS } }",
    /gateways\.default\.tls: `protocol: HTTPS` and `tls` must be set together/,
  ],
  ["a backend's root file that is none", route("localhost:1", "root: bad.pem"), /backendTLS: .*root/],
  [
    "a client certificate without its key",
    route("localhost:1", "cert: client.pem"),
    /backendTLS: `cert` and `key` must be set together/,
  ],
];
for (const [name, yaml, message] of badTls) {
  test(`the start is refused with ${name}`, async () => {
    await assert.rejects(startGateway(yaml, { files: { ...files, "bad.pem": "no certificate" } }), message);
  });
}

test("an HTTPS listener serves, changes its certificate on reload, and survives plain text", async (t) => {
  const backend = await backendFor(t);
  const yaml = `gateways: { default: { port: 0, protocol: HTTPS, tls: { cert: server.pem, key: server.key.pem } } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`;
  const gateway = await gatewayFor(t, yaml, { files });
  assert.deepEqual(await peerOf(gateway.port()), { status: 200, name: "backend.test" });
  assert.equal(backend.received[0]?.headers["x-forwarded-proto"], "https");

  const client = openRawClient(gateway.port());
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.ended();

  assert.equal(
    await gateway.reload(yaml.replace("server.pem", "client.pem").replace("server.key.pem", "client.key.pem")),
    "loaded",
  );
  assert.deepEqual(await peerOf(gateway.port()), { status: 200, name: "client.test" });
  assert.equal(await gateway.reload(yaml.replace("server.pem", "root.pem")), "refused");
  assert.deepEqual(await peerOf(gateway.port()), { status: 200, name: "client.test" });
});

function peerOf(port: number): Promise<{ status: number | undefined; name: string }> {
  return new Promise((resolve, reject) => {
    request({ port, host: "127.0.0.1", rejectUnauthorized: false, agent: false }, (res) => {
      const { subject } = (res.socket as TLSSocket).getPeerCertificate();
      res.resume().on("end", () => resolve({ status: res.statusCode, name: subject.CN as string }));
    })
      .once("error", reject)
      .end();
  });
}
