/**
 * `sessionPersistence`: the requests of a session go to one server of the route, also across replicas, and move when the
 * server is gone.
 */
import assert from "node:assert/strict";
import { createServer, request } from "node:https";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { startApp } from "../../src/app/app.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { createSnapshotSource } from "../../src/kubernetes/follow-controller.ts";
import type { TestBackend } from "../support/backend.ts";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly setCookie: string | null;
  /** The pair `name=value` of the new cookie. */
  readonly cookie: string;
}

async function get(url: string, cookie = ""): Promise<Answer> {
  const response = await fetch(url, { headers: cookie === "" ? {} : { cookie } });
  const setCookie = response.headers.get("set-cookie");
  return { status: response.status, text: await response.text(), setCookie, cookie: setCookie?.split(";")[0] ?? "" };
}

const named = (t: TestContext, name: string): Promise<TestBackend> =>
  backendFor(t, (_request, response) => void response.end(name));

const yamlOf = (backends: string, more = ""): string => `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ name: shop, policies: { sessionPersistence: { name: stick }${more} }, backends: [${backends}] }]
`;

test("a session stays on one endpoint of a service, and other clients are distributed", async (t) => {
  const servers = [await named(t, "one"), await named(t, "two"), await named(t, "three")];
  const service = `{ service: { name: shop, endpoints: [${servers.map(({ host }) => `"${host}"`).join()}] } }`;
  const gateway = await gatewayFor(t, yamlOf(service));
  const first = await get(gateway.url());
  assert.match(first.setCookie ?? "", /^stick=[A-Za-z0-9_-]{22}; Path=\/; HttpOnly; SameSite=Strict$/);
  const others = new Set<string>();
  for (let i = 0; i < 6; i++) {
    const answer = await get(gateway.url(), first.cookie);
    assert.deepEqual([answer.text, answer.setCookie], [first.text, null]);
    others.add((await get(gateway.url())).text);
  }
  assert.equal(others.size, 3);
  const replica = await gatewayFor(t, yamlOf(service));
  for (let i = 0; i < 3; i++) assert.equal((await get(replica.url(), first.cookie)).text, first.text);
});

test("a session stays on its backend although its weight becomes 0", async (t) => {
  const [one, two] = [await named(t, "one"), await named(t, "two")];
  const weighted = (first: number, second: number): string =>
    yamlOf(`{ host: "${one.host}", weight: ${first} }, { host: "${two.host}", weight: ${second} }`);
  const gateway = await gatewayFor(t, weighted(1, 0));
  const { cookie, text } = await get(gateway.url());
  assert.equal(text, "one");
  for (const second of [1, 0]) {
    assert.equal(await gateway.reload(weighted(0, second)), "loaded");
    assert.equal((await get(gateway.url(), cookie)).text, "one");
  }
  assert.equal((await get(gateway.url())).status, 500);
});

test("a retry leaves a server that cannot be reached, and the session moves", async (t) => {
  const [one, two] = [await named(t, "one"), await named(t, "two")];
  const gateway = await gatewayFor(
    t,
    yamlOf(`{ service: { name: shop, endpoints: ["${one.host}", "${two.host}"] } }`, ", retry: { attempts: 3 }"),
  );
  const first = await get(gateway.url());
  await (first.text === "one" ? one : two).close();
  const moved = await get(gateway.url(), first.cookie);
  assert.deepEqual([moved.status, moved.text], [200, first.text === "one" ? "two" : "one"]);
  const next = await get(gateway.url(), moved.cookie);
  assert.deepEqual([next.text, next.setCookie], [moved.text, null]);
});

test("over TLS, the cookie is secure, and a session stays on one server of a backend with client certificates", async (t) => {
  const tls = { ...certificates.server, requestCert: true, ca: certificates.root };
  const hosts: string[] = [];
  for (const name of ["one", "two"]) {
    const server = createServer(tls, (_request, response) => void response.end(name));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    hosts.push(`"localhost:${(server.address() as AddressInfo).port}"`);
  }
  const backendTls = "backendTLS: { root: root.pem, cert: client.pem, key: client.key.pem }";
  const gateway = await gatewayFor(
    t,
    yamlOf(`{ service: { name: shop, endpoints: [${hosts.join()}] }, policies: { ${backendTls} } }`).replace(
      "port: 0,",
      "port: 0, protocol: HTTPS, tls: { cert: server.pem, key: server.key.pem },",
    ),
    {
      files: {
        "root.pem": certificates.root,
        "server.pem": certificates.server.cert,
        "server.key.pem": certificates.server.key,
        "client.pem": certificates.client.cert,
        "client.key.pem": certificates.client.key,
      },
    },
  );
  const secureGet = (cookie: string): Promise<{ text: string; setCookie: string }> =>
    new Promise((resolve, reject) => {
      const options = { port: gateway.port(), host: "localhost", ca: certificates.root, headers: { cookie } };
      const sent = request(options, (response) => {
        let text = "";
        response.on("data", (chunk: Buffer) => {
          text += chunk.toString();
        });
        response.on("end", () => resolve({ text, setCookie: response.headers["set-cookie"]?.[0] ?? "" }));
      });
      sent.on("error", reject);
      sent.end();
    });
  const first = await secureGet("");
  assert.match(first.setCookie, /; HttpOnly; SameSite=Strict; Secure$/);
  const [cookie = ""] = first.setCookie.split(";");
  for (let i = 0; i < 3; i++) assert.deepEqual(await secureGet(cookie), { text: first.text, setCookie: "" });
});

test("the trace shows the session, and neither the backend nor a mirror gets the token", async (t) => {
  const [one, mirror] = [await backendFor(t), await backendFor(t)];
  const backend = `{ service: { name: shop, endpoints: ["${one.host}"] } }`;
  const gateway = await gatewayFor(t, yamlOf(backend, `, requestMirror: [{ host: "${mirror.host}" }]`));
  const { cookie } = await get(gateway.url());
  const sessionsOf = async (sent: string) => {
    const events = await traceOf(gateway, () => get(gateway.url(), sent));
    return messagesOf(events, "policyEvent")
      .filter(({ kind }) => kind === "sessionPersistence")
      .map(({ details }) => details);
  };
  assert.deepEqual(await sessionsOf(`a=1; ${cookie}`), [{ session: "continued", endpoint: one.host }]);
  assert.deepEqual(await sessionsOf("stick=AAAAAAAAAAAAAAAAAAAAAA"), [
    { session: "unknown" },
    { session: "started", endpoint: one.host },
  ]);
  await eventually("the mirror has all requests", () => mirror.received.length === 3);
  const cookies = ({ received }: TestBackend) => received.map(({ headers }) => headers.cookie ?? "").sort();
  assert.deepEqual(
    [cookies(one), cookies(mirror)],
    [
      ["", "", "a=1"],
      ["", "", "a=1"],
    ],
  );
});

const CONFLICTS: [what: string, backends: string, message: RegExp][] = [
  ["a canary", '{ host: "127.0.0.1:1" }, { host: "127.0.0.1:2", canary: { share: 5 } }', /canary/],
  [
    "an endpoint picker",
    '{ service: { name: s, endpoints: ["127.0.0.1:1"] }, policies: { endpointPicker: { host: "127.0.0.1:2" } } }',
    /endpointPicker/,
  ],
];
for (const [what, backends, message] of CONFLICTS)
  test(`a route with ${what} cannot have session persistence`, async (t) => {
    await assert.rejects(gatewayFor(t, yamlOf(backends)), message);
  });

const API = "gateway.networking.k8s.io/v1";
const at = (name: string) => ({ name, namespace: "shop" });
const rule = (path: string, backendRefs: readonly object[]) => ({
  matches: [{ path: { type: "PathPrefix", value: path } }],
  sessionPersistence: { sessionName: "stick" },
  backendRefs,
});

test("in a cluster, each rule has its own session, which follows the endpoints of the Service", async (t) => {
  const [one, two] = [await named(t, "one"), await named(t, "two")];
  const service = { name: "web", port: 8080 };
  const documents: KubernetesObject[] = [
    {
      apiVersion: API,
      kind: "Gateway",
      metadata: at("edge"),
      spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
    },
    {
      apiVersion: API,
      kind: "HTTPRoute",
      metadata: { ...at("web"), uid: "6e0b1a52-0001-4000-8000-000000000001" },
      spec: { parentRefs: [{ name: "edge" }], rules: [rule("/a", [service]), rule("/b", [service])] },
    },
    { apiVersion: "v1", kind: "Service", metadata: at("web"), spec: { ports: [{ port: 8080 }] } },
  ];
  const source = createSnapshotSource(() => undefined);
  const serve = (...pods: readonly TestBackend[]): void =>
    void source.take(createSnapshot("shop/edge", documents, { "shop/web:8080": pods.map(({ host }) => host) }));
  serve(one, two);
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
  const url = `http://127.0.0.1:${[...app.ports().values()][0]}`;

  const first = await get(`${url}/a`);
  assert.match(first.setCookie ?? "", /; Path=\/a;/);
  for (let i = 0; i < 4; i++) assert.equal((await get(`${url}/a`, first.cookie)).text, first.text);
  const other = await get(`${url}/b`, first.cookie);
  assert.match(other.setCookie ?? "", /; Path=\/b;/);
  assert.notEqual(other.cookie, first.cookie);
  const both = `${other.cookie}; ${first.cookie}`;
  for (let i = 0; i < 4; i++)
    assert.deepEqual(
      [(await get(`${url}/a`, both)).text, (await get(`${url}/b`, both)).text],
      [first.text, other.text],
    );

  const [gone, left] = first.text === "one" ? [one, two] : [two, one];
  serve(left);
  await eventually("the session leaves the pod that is gone", async () => {
    const moved = await get(`${url}/a`, first.cookie);
    return moved.text !== first.text && moved.cookie !== "" && moved.cookie !== first.cookie;
  });
  serve(left, gone);
  await eventually("an old cookie is valid when the pod is back", async () => {
    const back = await get(`${url}/a`, first.cookie);
    return back.text === first.text && back.setCookie === null;
  });
});
