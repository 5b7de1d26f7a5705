/**
 * TLS of a cluster's documents in a data plane: listeners of one port are kept apart by their names (421), and a
 * BackendTLSPolicy decides which servers behind a Service are believed.
 */
import assert from "node:assert/strict";
import { type ClientHttp2Session, connect } from "node:http2";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { startApp } from "../../src/app/app.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { createSnapshotSource } from "../../src/kubernetes/follow-controller.ts";
import { certificates } from "../support/tls/certificates.ts";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const at = (name: string) => ({ name, namespace: "shop" });
const text = (value: string): string => Buffer.from(value).toString("base64");

async function dataPlane(
  t: TestContext,
  objects: readonly KubernetesObject[],
  endpoints: Readonly<Record<string, readonly string[]>>,
): Promise<void> {
  const source = createSnapshotSource(() => undefined);
  source.take(createSnapshot("shop/edge", objects, endpoints));
  const app = await startApp({
    sources: { text: "config: { adminAddr: off }" },
    cluster: source,
    environment: {},
    clock: systemClock,
    output: { write: () => undefined, dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
  });
  t.after(() => Promise.all([app.stop(), app.stop()]));
}

async function tlsServer(t: TestContext): Promise<string> {
  const server = createTlsServer(certificates.server, (_req, res) => void res.end("over TLS"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function status(session: ClientHttp2Session, authority: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": "/", ":authority": authority });
    stream.on("response", (headers) => {
      resolve(Number(headers[":status"]));
      stream.resume();
    });
    stream.on("error", reject);
  });
}

test("a connection for one listener does not serve another of its port, and stays", async (t) => {
  const port = await freePort();
  const tls = { certificateRefs: [{ name: "pair" }] };
  const listener = (name: string, hostname?: string) => ({
    name,
    port,
    protocol: "HTTPS",
    tls,
    ...(hostname === undefined ? {} : { hostname }),
  });
  const objects: KubernetesObject[] = [
    {
      apiVersion: GATEWAY_API,
      kind: "Gateway",
      metadata: at("edge"),
      spec: { listeners: [listener("all"), listener("one", "one.test"), listener("wild", "*.wild.test")] },
    },
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: at("pair"),
      data: { "tls.crt": text(certificates.server.cert), "tls.key": text(certificates.server.key) },
    },
    {
      apiVersion: GATEWAY_API,
      kind: "HTTPRoute",
      metadata: at("web"),
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: [
          {
            filters: [{ type: "RequestRedirect", requestRedirect: { hostname: "else.test", statusCode: 302 } }],
          },
        ],
      },
    },
  ];
  await dataPlane(t, objects, {});
  const rows = [
    ["one.test", { "one.test": 302, "two.test": 421, "a.wild.test": 421 }],
    ["a.wild.test", { "b.wild.test": 302, "one.test": 421, "other.test": 421 }],
    ["other.test", { "other.test": 302, "another.test": 302, "one.test": 421 }],
  ] as const;
  for (const [servername, hosts] of rows) {
    const session = connect(`https://127.0.0.1:${port}`, { servername, rejectUnauthorized: false });
    t.after(() => session.destroy());
    // One after the other on one connection: a refusal does not end it.
    for (const [host, expected] of Object.entries(hosts))
      assert.equal(await status(session, host), expected, `${servername} ${host}`);
    assert.equal(session.destroyed || session.closed, false);
  }
});

test("a BackendTLSPolicy decides which servers are believed", async (t) => {
  const port = await freePort();
  const server = await tlsServer(t);
  const validations: Record<string, object> = {
    good: { hostname: "backend.test" },
    name: { hostname: "other.test" },
    names: { hostname: "asked.test", subjectAltNames: [{ type: "Hostname", hostname: "backend.test" }] },
    uri: { hostname: "backend.test", subjectAltNames: [{ type: "URI", uri: "spiffe://backend.test" }] },
    system: { hostname: "backend.test", wellKnownCACertificates: "System", caCertificateRefs: undefined },
    missing: { hostname: "backend.test", caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "gone" }] },
  };
  const names = Object.keys(validations);
  const objects: KubernetesObject[] = [
    {
      apiVersion: GATEWAY_API,
      kind: "Gateway",
      metadata: at("edge"),
      spec: { listeners: [{ name: "http", port, protocol: "HTTP" }] },
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: at("roots"), data: { "ca.crt": certificates.root } },
    {
      apiVersion: GATEWAY_API,
      kind: "HTTPRoute",
      metadata: at("web"),
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: names.map((name) => ({
          matches: [{ path: { type: "PathPrefix", value: `/${name}` } }],
          backendRefs: [{ name, port: 443 }],
        })),
      },
    },
    ...names.flatMap((name) => [
      { apiVersion: "v1", kind: "Service", metadata: at(name), spec: { ports: [{ name: "tls", port: 443 }] } },
      {
        apiVersion: GATEWAY_API,
        kind: "BackendTLSPolicy",
        metadata: at(name),
        spec: {
          targetRefs: [{ group: "", kind: "Service", name }],
          validation: { caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "roots" }], ...validations[name] },
        },
      },
    ]),
  ];
  await dataPlane(t, objects, Object.fromEntries(names.map((name) => [`shop/${name}:443`, [server]])));
  const found = await Promise.all(
    names.map(async (name) => [name, (await fetch(`http://127.0.0.1:${port}/${name}`)).status]),
  );
  assert.deepEqual(Object.fromEntries(found), {
    good: 200,
    name: 502,
    names: 200,
    uri: 502,
    system: 502,
    missing: 500,
  });
});
