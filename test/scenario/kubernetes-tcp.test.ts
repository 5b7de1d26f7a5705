/**
 * TLSRoutes and TCPRoutes in a data plane: the server name selects the listener and the route, TLS is passed through or
 * terminated, and listeners that a security policy should protect reject connections.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { freePort } from "../support/free-port.ts";
import { dataPlane } from "../support/kubernetes/data-plane.ts";
import { ask, echo, tls as openTls, plain } from "../support/tcp-connections.ts";
import { certificates } from "../support/tls/certificates.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const at = (name: string) => ({ name, namespace: "shop" });
const text = (value: string): string => Buffer.from(value).toString("base64");
const object = (kind: string, name: string, spec: object, apiVersion = GATEWAY_API): KubernetesObject => ({
  apiVersion,
  kind,
  metadata: at(name),
  spec,
});
const gateway = (listeners: readonly object[]) => object("Gateway", "edge", { listeners });
const service = (name: string) => object("Service", name, { ports: [{ name: "tcp", port: 3000 }] }, "v1");
const route = (kind: string, name: string, backendRefs: readonly object[], more: object = {}) =>
  object(kind, name, { parentRefs: [{ name: "edge" }], rules: [{ backendRefs }], ...more });
const pair: KubernetesObject = {
  apiVersion: "v1",
  kind: "Secret",
  metadata: at("pair"),
  data: { "tls.crt": text(certificates.server.cert), "tls.key": text(certificates.server.key) },
};
const tlsListener = (name: string, hostname: string | undefined, mode: string) => ({
  name,
  port: 0,
  protocol: "TLS",
  ...(hostname === undefined ? {} : { hostname }),
  tls: { mode, ...(mode === "Terminate" ? { certificateRefs: [{ name: "pair" }] } : {}) },
});

const tls = (port: number, servername: string | undefined) => openTls(port, servername, { ALPNProtocols: ["mqtt"] });

test("a TCPRoute forwards connections, and the oldest route of a listener counts", async (t) => {
  const older = route("TCPRoute", "older", [{ name: "one", port: 3000 }]);
  const newer = route("TCPRoute", "newer", [{ name: "two", port: 3000 }]);
  const { port } = await dataPlane(
    t,
    [
      gateway([{ name: "tcp", port: 0, protocol: "TCP" }]),
      { ...newer, metadata: { ...newer.metadata, creationTimestamp: "2026-01-02T00:00:00Z" } },
      { ...older, metadata: { ...older.metadata, creationTimestamp: "2026-01-01T00:00:00Z" } },
      service("one"),
      service("two"),
    ],
    { "shop/one:3000": [await echo(t, "one")], "shop/two:3000": [await echo(t, "two")] },
  );
  assert.equal(await ask(plain(port)), "one:hello");
  const large = Buffer.alloc(3_000_000, "x");
  assert.equal((await ask(plain(port), large)).length, "one:".length + large.length);
});

test("weights decide, an invalid backend rejects its share, and a dead endpoint is skipped", async (t) => {
  const one = await echo(t, "one");
  const deadAddress = `127.0.0.1:${await freePort()}`;
  const refs = [
    { name: "one", port: 3000, weight: 1 },
    { name: "gone", port: 3000, weight: 1 },
    { name: "two", port: 3000, weight: 0 },
  ];
  const { port } = await dataPlane(
    t,
    [
      gateway([{ name: "tcp", port: 0, protocol: "TCP" }]),
      route("TCPRoute", "web", refs),
      service("one"),
      service("two"),
    ],
    { "shop/one:3000": [deadAddress, one], "shop/two:3000": [await echo(t, "two")] },
  );
  const answers = new Set<string>();
  for (let i = 0; i < 40; i++) answers.add(await ask(plain(port)));
  assert.deepEqual([...answers].sort(), ["one:hello", "refused"]);
});

test("a TLS listener passes TLS through or terminates it, by the server name", async (t) => {
  const { port } = await dataPlane(
    t,
    [
      gateway([
        tlsListener("pass", "*.pass.test", "Passthrough"),
        tlsListener("own", "own.pass.test", "Passthrough"),
        tlsListener("end", "end.test", "Terminate"),
      ]),
      route("TLSRoute", "pass", [{ name: "secure", port: 3000 }], { hostnames: ["a.pass.test", "own.pass.test"] }),
      route("TLSRoute", "end", [{ name: "plain", port: 3000 }], { hostnames: ["end.test"] }),
      {
        ...route("TLSRoute", "all", [{ name: "other", port: 3000 }]),
        spec: {
          parentRefs: [{ name: "edge", sectionName: "pass" }],
          hostnames: ["*.pass.test"],
          rules: [{ backendRefs: [{ name: "other", port: 3000 }] }],
        },
      },
      service("secure"),
      service("plain"),
      service("other"),
      pair,
    ],
    {
      "shop/secure:3000": [await echo(t, "secure", true)],
      "shop/plain:3000": [await echo(t, "plain")],
      "shop/other:3000": [await echo(t, "other", true)],
    },
  );
  const found: Record<string, string> = {};
  for (const name of ["a.pass.test", "b.pass.test", "own.pass.test", "end.test", "unknown.test"])
    found[name] = await ask(tls(port, name));
  assert.deepEqual(found, {
    "a.pass.test": "secure:hello",
    "b.pass.test": "other:hello",
    "own.pass.test": "secure:hello",
    "end.test": "plain:hello",
    "unknown.test": "refused",
  });
  assert.equal(await ask(tls(port, undefined)), "refused");
  assert.equal(await ask(plain(port), "GET / HTTP/1.1\r\n\r\n"), "refused");
});

test("the name of a listener without routes is not served by another listener", async (t) => {
  const { port } = await dataPlane(
    t,
    [
      gateway([
        tlsListener("pass", "*.pass.test", "Passthrough"),
        { ...tlsListener("own", "own.pass.test", "Passthrough"), allowedRoutes: { namespaces: { from: "None" } } },
      ]),
      route("TLSRoute", "pass", [{ name: "secure", port: 3000 }], { hostnames: ["*.pass.test", "own.pass.test"] }),
      service("secure"),
    ],
    { "shop/secure:3000": [await echo(t, "secure", true)] },
  );
  assert.equal(await ask(tls(port, "a.pass.test")), "secure:hello");
  assert.equal(await ask(tls(port, "own.pass.test")), "refused");
});

test("a listener that a security policy should protect rejects connections", async (t) => {
  const policy = (name: string, sectionName: string, traffic: object) =>
    object(
      "GatewayPolicy",
      name,
      { targetRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", name: "edge", sectionName }], traffic },
      "policy.gateway.internal/v1alpha1",
    );
  const { port } = await dataPlane(
    t,
    [
      gateway([tlsListener("a", "a.test", "Passthrough"), tlsListener("b", "b.test", "Passthrough")]),
      route("TLSRoute", "all", [{ name: "secure", port: 3000 }], { hostnames: ["a.test", "b.test"] }),
      service("secure"),
      policy("protected", "a", { authorization: { rules: ["true"] } }),
      policy("limited", "b", { rateLimit: { local: [{ requests: 1, unit: "Seconds" }] } }),
    ],
    { "shop/secure:3000": [await echo(t, "secure", true)] },
  );
  assert.equal(await ask(tls(port, "a.test")), "refused");
  assert.equal(await ask(tls(port, "b.test")), "secure:hello");
});

test("a shutdown waits for open connections", async (t) => {
  const { app, port } = await dataPlane(
    t,
    [
      gateway([{ name: "tcp", port: 0, protocol: "TCP" }]),
      route("TCPRoute", "web", [{ name: "one", port: 3000 }]),
      service("one"),
    ],
    { "shop/one:3000": [await echo(t, "one")] },
  );
  const client = plain(port);
  t.after(() => client.destroy());
  await new Promise((resolve) => client.once("data", resolve));
  const stopped = app.stop();
  const received = new Promise<string>((resolve) => client.once("data", (chunk: Buffer) => resolve(chunk.toString())));
  client.write("late");
  assert.equal(await received, "late");
  client.end();
  await stopped;
  assert.equal(await ask(plain(port)), "refused");
});

test("a security policy that arrives later closes open connections", async (t) => {
  const objects = [
    gateway([{ name: "tcp", port: 0, protocol: "TCP" }]),
    route("TCPRoute", "web", [{ name: "one", port: 3000 }]),
    service("one"),
  ];
  const endpoints = { "shop/one:3000": [await echo(t, "one")] };
  const { source, port } = await dataPlane(t, objects, endpoints);
  const client = plain(port);
  t.after(() => client.destroy());
  client.on("error", () => undefined);
  await new Promise((resolve) => client.once("data", resolve));
  const closed = new Promise((resolve) => client.once("close", resolve));
  client.resume();
  client.on("end", () => client.end());
  const targetRefs = [{ group: "gateway.networking.k8s.io", kind: "Gateway", name: "edge" }];
  const traffic = { authorization: { rules: ["true"] } };
  const policy = object("GatewayPolicy", "late", { targetRefs, traffic }, "policy.gateway.internal/v1alpha1");
  source.take(createSnapshot("shop/edge", [...objects, policy], endpoints));
  await closed;
  assert.equal(await ask(plain(port)), "refused");
});
