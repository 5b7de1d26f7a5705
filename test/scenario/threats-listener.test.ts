/**
 * Attacks on the surface of a listener that need a whole gateway: values of a request that would become lines of
 * their own, Hosts that are no authority on the admin address, and defects inside of a request.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";

const HOSTS = ["x/health?", "x#", "x@y", "x y", "x,y", "localhost/healthz/live?", "localhost#", "evil@localhost"];

test("a Host that is no authority reaches neither a route nor the admin interface [V4]", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const adminPort = Number(new URL(gateway.adminUrl).port);
  for (const host of HOSTS) {
    for (const [port, path] of [
      [gateway.port(), "/"],
      [adminPort, "/config_dump"],
    ] as const) {
      const answer = await rawRequest(port, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      const accepted = port === adminPort ? [400, 403] : [400];
      assert.ok(accepted.includes(answer.status), `${host} on ${path}: ${answer.status}`);
    }
  }
  assert.equal(backend.received.length, 0);
});

/** Each decodes, somewhere, to a line break and a header of the attacker's. */
const LINES = [
  "%0d%0aset-cookie:%20a=b",
  "%0aset-cookie:a=b",
  "%E5%98%8A%E5%98%8Dset-cookie:a=b",
  "%c0%8d%c0%8aset-cookie:a=b",
];

test("nothing of a request becomes a header or a line of its own, in answers or at the backend [L13]", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - name: moved
    matches: [{ path: { pathPrefix: /moved } }]
    policies: { requestRedirect: { path: { prefix: /new } } }
  - name: echoed
    matches: [{ path: { pathPrefix: /echoed } }]
    policies:
      transformations:
        request: { set: { x-path: request.path, x-query: 'request.pathAndQuery', x-decoded: 'string(base64.decode(request.headers["x-in"]))', x-plain: 'string(base64.decode("YWJj"))' } }
        response: { set: { x-answer: 'request.path', x-back: 'string(base64.decode(request.headers["x-in"]))' } }
    backends: [{ host: "${backend.host}" }]
  - name: rewritten
    matches: [{ path: { pathPrefix: /rewritten } }]
    policies: { urlRewrite: { path: { prefix: /r } } }
    backends: [{ host: "${backend.host}" }]
`,
  );
  const inside = Buffer.from("a\r\nset-cookie: a=b").toString("base64");
  for (const line of LINES) {
    for (const path of ["moved", "echoed", "rewritten"]) {
      for (const target of [`/${path}/x${line}?q=${line}`, `/${path}/x?q=${line}`]) {
        const answer = await rawRequest(
          gateway.port(),
          requestText(`GET ${target} HTTP/1.1`, [`X-In: ${inside}`, `X-Request-Id: ${line}`]),
        );
        assert.ok([200, 302, 400].includes(answer.status), `${target}: ${answer.status}`);
        assert.equal(answer.statuses.length, 1);
        assert.doesNotMatch(answer.text, /^set-cookie/im, target);
      }
    }
  }
  assert.ok(backend.received.length >= LINES.length);
  for (const { headers } of backend.received) assert.equal(headers["set-cookie"], undefined);
  const echoed = backend.received.find(({ url }) => url?.startsWith("/echoed"));
  assert.deepEqual([echoed?.headers["x-plain"], echoed?.headers["x-decoded"]], ["abc", undefined]);
});

test("a defect inside of a request is its own 500 without details, and the next request is served [R44]", async (t) => {
  const backend = await backendFor(t);
  let isBroken = false;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }, { host: "${backend.host}" }] }]\n`,
    {
      random() {
        if (isBroken) throw new Error("a defect that the test asked for");
        return 0;
      },
    },
  );
  assert.equal((await fetch(gateway.url())).status, 200);
  isBroken = true;
  for (let i = 0; i < 3; i++) {
    const response = await fetch(gateway.url(), { method: "POST", body: "x" });
    assert.equal(response.status, 500);
    assert.doesNotMatch(await response.text(), /asked for|at .*:\d+/);
  }
  await gateway.logged("unexpected error source=request");
  isBroken = false;
  assert.equal((await fetch(gateway.url())).status, 200);
});
