/**
 * TLS of a cluster's documents in a data plane: listeners of one port are kept apart by their names (421) and have their
 * own policies, clients need the certificates that the Gateway asks for, and a BackendTLSPolicy decides which servers
 * behind a Service are believed.
 */
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { type ClientHttp2Session, connect } from "node:http2";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import type { TLSSocket } from "node:tls";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { dataPlane } from "../support/kubernetes/data-plane.ts";
import { certificates } from "../support/tls/certificates.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const at = (name: string) => ({ name, namespace: "shop" });
const text = (value: string): string => Buffer.from(value).toString("base64");

async function tlsServer(t: TestContext, options: object = {}): Promise<string> {
  const server = createTlsServer({ ...certificates.server, ...options }, (_req, res) => void res.end("over TLS"));
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
  const tls = { certificateRefs: [{ name: "pair" }] };
  const listener = (name: string, hostname?: string) => ({
    name,
    port: 0,
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
            filters: [
              { type: "RequestRedirect", requestRedirect: { hostname: "else.test", port: 80, statusCode: 302 } },
            ],
          },
        ],
      },
    },
  ];
  const { port } = await dataPlane(t, objects, {});
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

const redirectRoute = (gateway: string): KubernetesObject => ({
  apiVersion: GATEWAY_API,
  kind: "HTTPRoute",
  metadata: at(`to-${gateway}`),
  spec: {
    parentRefs: [{ name: gateway }],
    rules: [
      { filters: [{ type: "RequestRedirect", requestRedirect: { hostname: "else.test", port: 80, statusCode: 302 } }] },
    ],
  },
});

const pair: KubernetesObject = {
  apiVersion: "v1",
  kind: "Secret",
  metadata: at("pair"),
  data: { "tls.crt": text(certificates.server.cert), "tls.key": text(certificates.server.key) },
};

/** A policy that admits requests with this key only. */
const keyPolicy = (name: string, key: string, sectionName?: string): KubernetesObject => ({
  apiVersion: "policy.gateway.internal/v1alpha1",
  kind: "GatewayPolicy",
  metadata: at(name),
  spec: {
    targetRefs: [
      {
        group: "gateway.networking.k8s.io",
        kind: "Gateway",
        name: "edge",
        ...(sectionName === undefined ? {} : { sectionName }),
      },
    ],
    traffic: { authorization: { rules: [`request.headers["x-key"] == "${key}"`] } },
  },
});

function statusWithKey(session: ClientHttp2Session, authority: string, key: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": "/", ":authority": authority, "x-key": key });
    stream.on("response", (headers) => {
      resolve(Number(headers[":status"]));
      stream.resume();
    });
    stream.on("error", reject);
  });
}

for (const protocol of ["HTTP", "HTTPS"] as const)
  test(`a policy for one ${protocol} listener does not apply to the others of its port`, async (t) => {
    const tls = protocol === "HTTP" ? {} : { tls: { certificateRefs: [{ name: "pair" }] } };
    const listener = (name: string, hostname?: string) => ({
      name,
      port: 0,
      protocol,
      ...tls,
      ...(hostname === undefined ? {} : { hostname }),
    });
    const { port } = await dataPlane(
      t,
      [
        {
          apiVersion: GATEWAY_API,
          kind: "Gateway",
          metadata: at("edge"),
          spec: {
            listeners: [listener("a", "a.test"), listener("b", "*.b.test"), listener("c", "c.test"), listener("all")],
          },
        },
        pair,
        redirectRoute("edge"),
        keyPolicy("pa", "a", "a"),
        keyPolicy("pb", "b", "b"),
      ],
      {},
    );
    const rows: Record<string, Record<string, number>> = {
      "a.test": { a: 302, b: 403, "": 403 },
      "one.b.test": { a: 403, b: 302, "": 403 },
      "c.test": { a: 302, b: 302, "": 302 },
      "other.test": { a: 302, b: 302, "": 302 },
    };
    for (const [host, keys] of Object.entries(rows)) {
      const session = connect(`${protocol.toLowerCase()}://127.0.0.1:${port}`, {
        servername: host,
        rejectUnauthorized: false,
      });
      t.after(() => session.destroy());
      for (const [key, expected] of Object.entries(keys))
        assert.equal(await statusWithKey(session, host, key), expected, `${host} with key ${key}`);
      if (protocol === "HTTPS" && host !== "c.test") assert.equal(await statusWithKey(session, "c.test", ""), 421);
    }
  });

test("a policy for the whole Gateway applies to every listener, beside those for one", async (t) => {
  const listener = (name: string) => ({ name, port: 0, protocol: "HTTP", hostname: `${name}.test` });
  const { port } = await dataPlane(
    t,
    [
      {
        apiVersion: GATEWAY_API,
        kind: "Gateway",
        metadata: at("edge"),
        spec: { listeners: [listener("a"), listener("b")] },
      },
      redirectRoute("edge"),
      keyPolicy("pa", "a", "a"),
      keyPolicy("whole", "b"),
    ],
    {},
  );
  const session = connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  assert.equal(await statusWithKey(session, "a.test", "a"), 403);
  assert.equal(await statusWithKey(session, "a.test", "b"), 403);
  assert.equal(await statusWithKey(session, "b.test", "b"), 302);
  assert.equal(await statusWithKey(session, "b.test", "a"), 403);
  assert.equal(await statusWithKey(session, "unknown.test", "a"), 403, "no listener has this host name");
});

test("listeners of a ListenerSet have their own certificate, routes, and policies beside those of the Gateway", async (t) => {
  const listener = (name: string, secret: string) => ({
    name,
    port: 0,
    protocol: "HTTPS",
    hostname: `${name}.test`,
    tls: { certificateRefs: [{ name: secret }] },
  });
  const tenant = (name: string) => ({ name, namespace: "tenant" });
  const redirects = (metadata: KubernetesObject["metadata"], parent: object, hostname: string): KubernetesObject => ({
    apiVersion: GATEWAY_API,
    kind: "HTTPRoute",
    metadata,
    spec: {
      parentRefs: [parent],
      rules: [{ filters: [{ type: "RequestRedirect", requestRedirect: { hostname, port: 80, statusCode: 302 } }] }],
    },
  });
  const { port } = await dataPlane(
    t,
    [
      {
        apiVersion: GATEWAY_API,
        kind: "Gateway",
        metadata: at("edge"),
        spec: { listeners: [listener("a", "pair")], allowedListeners: { namespaces: { from: "All" } } },
      },
      pair,
      {
        ...pair,
        metadata: tenant("own"),
        data: { "tls.crt": text(certificates.client.cert), "tls.key": text(certificates.client.key) },
      },
      {
        apiVersion: GATEWAY_API,
        kind: "ListenerSet",
        metadata: tenant("more"),
        spec: { parentRef: { name: "edge", namespace: "shop" }, listeners: [listener("b", "own")] },
      },
      redirects(at("web"), { name: "edge" }, "gateway.test"),
      redirects(tenant("web"), { kind: "ListenerSet", name: "more" }, "set.test"),
      {
        ...keyPolicy("tenant", "b"),
        metadata: tenant("keys"),
        spec: {
          targetRefs: [{ group: "gateway.networking.k8s.io", kind: "ListenerSet", name: "more" }],
          traffic: { authorization: { rules: ['request.headers["x-key"] == "b"'] } },
        },
      },
    ],
    {},
  );
  const certificateOf = new Map<string, string>();
  for (const [host, keys] of [
    ["a.test", { a: 302, b: 302 }],
    ["b.test", { a: 403, b: 302 }],
  ] as const) {
    const session = connect(`https://127.0.0.1:${port}`, { servername: host, rejectUnauthorized: false });
    t.after(() => session.destroy());
    for (const [key, expected] of Object.entries(keys))
      assert.equal(await statusWithKey(session, host, key), expected, `${host} with key ${key}`);
    certificateOf.set(host, (session.socket as TLSSocket).getPeerCertificate().fingerprint256);
  }
  assert.equal(certificateOf.get("a.test"), new X509Certificate(certificates.server.cert).fingerprint256);
  assert.equal(certificateOf.get("b.test"), new X509Certificate(certificates.client.cert).fingerprint256);
});

test("a protection with the name of no listener blocks the whole Gateway", async (t) => {
  const { port } = await dataPlane(
    t,
    [
      {
        apiVersion: GATEWAY_API,
        kind: "Gateway",
        metadata: at("edge"),
        spec: { listeners: [{ name: "web", port: 0, protocol: "HTTP" }] },
      },
      redirectRoute("edge"),
      keyPolicy("misspelled", "a", "wbe"),
    ],
    {},
  );
  const session = connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  assert.equal(await statusWithKey(session, "any.test", "a"), 500);
});

const ca = (name: string) => ({ validation: { caCertificateRefs: [{ group: "", kind: "ConfigMap", name }] } });
const FRONTENDS: [name: string, frontend: object, expected: readonly [withCertificate: unknown, without: unknown]][] = [
  ["the default", { default: ca("roots") }, [302, "refused"]],
  ["the settings of a port", { perPort: [{ port: 0, tls: ca("roots") }] }, [302, "refused"]],
  ["a port without validation", { default: ca("roots"), perPort: [{ port: 0, tls: {} }] }, [302, 302]],
  ["a missing ConfigMap", { default: ca("roots"), perPort: [{ port: 0, tls: ca("gone") }] }, ["refused", "refused"]],
];
for (const [name, frontend, expected] of FRONTENDS)
  test(`spec.tls.frontend decides which clients can connect: ${name}`, async (t) => {
    const listener = { name: "https", port: 0, protocol: "HTTPS", tls: { certificateRefs: [{ name: "pair" }] } };
    const { port } = await dataPlane(
      t,
      [
        {
          apiVersion: GATEWAY_API,
          kind: "Gateway",
          metadata: at("edge"),
          spec: { tls: { frontend }, listeners: [listener] },
        },
        { apiVersion: "v1", kind: "ConfigMap", metadata: at("roots"), data: { "ca.crt": certificates.root } },
        pair,
        redirectRoute("edge"),
      ],
      {},
    );
    const attempt = async (identity: object): Promise<number | string> => {
      // A Gateway that is not served has no port.
      if (port === 0) return "refused";
      const session = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false, ...identity });
      t.after(() => session.destroy());
      session.on("error", () => undefined);
      return status(session, "any.test").catch(() => "refused");
    };
    assert.deepEqual([await attempt(certificates.client), await attempt({})], expected);
  });

test("a BackendTLSPolicy decides which servers are believed", async (t) => {
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
      spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
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
  const { port } = await dataPlane(t, objects, Object.fromEntries(names.map((name) => [`shop/${name}:443`, [server]])));
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

for (const [what, name, expected] of [
  ["presents its client certificate to a Service", "identity", 200],
  ["without its client certificate rejects requests to a Service", "gone", 500],
] as const)
  test(`a Gateway ${what} with a BackendTLSPolicy`, async (t) => {
    const server = await tlsServer(t, { ca: certificates.root, requestCert: true, rejectUnauthorized: true });
    const { client } = certificates;
    const objects: KubernetesObject[] = [
      {
        apiVersion: GATEWAY_API,
        kind: "Gateway",
        metadata: at("edge"),
        spec: {
          tls: { backend: { clientCertificateRef: { name } } },
          listeners: [{ name: "http", port: 0, protocol: "HTTP" }],
        },
      },
      { ...pair, metadata: at("identity"), data: { "tls.crt": text(client.cert), "tls.key": text(client.key) } },
      { apiVersion: "v1", kind: "ConfigMap", metadata: at("roots"), data: { "ca.crt": certificates.root } },
      {
        apiVersion: GATEWAY_API,
        kind: "HTTPRoute",
        metadata: at("web"),
        spec: { parentRefs: [{ name: "edge" }], rules: [{ backendRefs: [{ name: "web", port: 443 }] }] },
      },
      { apiVersion: "v1", kind: "Service", metadata: at("web"), spec: { ports: [{ name: "tls", port: 443 }] } },
      {
        apiVersion: GATEWAY_API,
        kind: "BackendTLSPolicy",
        metadata: at("web"),
        spec: {
          targetRefs: [{ group: "", kind: "Service", name: "web" }],
          validation: {
            hostname: "backend.test",
            caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "roots" }],
          },
        },
      },
    ];
    const { port } = await dataPlane(t, objects, { "shop/web:443": [server] });
    assert.equal((await fetch(`http://127.0.0.1:${port}/`)).status, expected);
  });
