/**
 * What reaches a backend and comes back: hop-by-hop headers stay behind, forwarding headers and ids are ours.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rawBackend } from "../support/http1/raw-backend.ts";
import { rawRequest } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";

const config = (host: string, more = ""): string =>
  `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${host}" }]${more === "" ? "" : `, ${more}`} }]\n`;

test("what goes to the backend: hop-by-hop headers removed, forwarding headers ours, Host kept, an id given [L12]", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const answer = await rawRequest(
    gateway.port(),
    "GET / HTTP/1.1\r\nHost: Gateway.test:8080\r\nConnection: close, X-Secret-Hop, X-Forwarded-For, Host, Cookie\r\nKeep-Alive: 1\r\nTE: trailers\r\nProxy-Connection: x\r\n" +
      "X-Secret-Hop: 1\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=6.6.6.6\r\n" +
      "Cookie: a=1\r\nX-Kept: yes\r\nX-Kept: twice\r\nX-Request-Id: mine-1\r\n\r\n",
  );
  assert.equal(answer.status, 200);
  assert.match(answer.text, /^x-request-id: mine-1\r$/m);
  const { headers } = backend.received[0] ?? { headers: {} };
  assert.deepEqual(headers, {
    // In canonical form: rules and the backend read the same host.
    host: "gateway.test:8080",
    cookie: "a=1",
    "x-kept": "yes, twice",
    "x-request-id": "mine-1",
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
    "x-forwarded-host": "gateway.test:8080",
    connection: "keep-alive",
  });
});

test("cookies of the gateway's own sign-ins reach no backend, whatever route they were made for [D31]", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const cookie =
    "a=1; __Host-gateway_session_7d10b117=secret; b=gateway_; gateway_signin_7d10b117_3=secret; __Host-gateway_connect_abc=x";
  await fetch(gateway.url(), { headers: { cookie } });
  await fetch(gateway.url(), { headers: { cookie: "gateway_session_7d10b117=secret" } });
  assert.deepEqual(
    backend.received.map(({ headers }) => headers.cookie),
    ["a=1; b=gateway_", undefined],
  );
});

test("an id that is not of the allowed form is replaced, for the client and the backend", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const response = await fetch(gateway.url(), { headers: { "x-request-id": "bad id!" } });
  const id = response.headers.get("x-request-id") ?? "";
  assert.match(id, /^[0-9a-f]{16}$/);
  assert.equal(backend.received[0]?.headers["x-request-id"], id);
});

test("a trusted proxy's forwarding headers are believed and extended", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, `config: { trustedProxies: ["127.0.0.0/8"] }\n${config(backend.host)}`);
  await fetch(gateway.url(), {
    headers: { "x-forwarded-for": "9.9.9.9", "x-forwarded-proto": "https", "x-forwarded-host": "outer" },
  });
  const headers = backend.received[0]?.headers ?? {};
  assert.deepEqual(
    [headers["x-forwarded-for"], headers["x-forwarded-proto"], headers["x-forwarded-host"]],
    ["9.9.9.9, 127.0.0.1", "https", "outer"],
  );
});

test("a client cannot strip a header that a policy adds by naming it in connection [V13]", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    'policies: { requestHeaderModifier: { set: { x-user: "from the gateway" } } }',
  );
  await rawRequest(gateway.port(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x-user\r\nX-User: forged\r\n\r\n");
  assert.equal(backend.received[0]?.headers["x-user"], "from the gateway");
});

test("hop-by-hop headers of the backend's answer stay behind, and its claim to be us too", async (t) => {
  const backend = await rawBackend(t, (socket) =>
    socket.write(
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\nX-Gateway-Error: bad_request\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Kept: 1\r\n\r\nok",
    ),
  );
  const gateway = await gatewayFor(t, config(backend.host));
  const response = await fetch(gateway.url());
  assert.equal(response.headers.get("x-hop"), null);
  assert.equal(response.headers.get("x-kept"), "1");
  assert.equal(response.headers.get("x-gateway-error"), null);
  assert.deepEqual(response.headers.getSetCookie(), ["a=1", "b=2"]);
});

test("an upgrade offer other than WebSocket is ignored, with and without a body [L6]", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const offer = [
    "Connection: Upgrade, HTTP2-Settings, close",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
  ];
  const got = await rawRequest(gateway.port(), `GET /h2c HTTP/1.1\r\nHost: a\r\n${offer.join("\r\n")}\r\n\r\n`);
  assert.deepEqual(got.statuses, [200]);
  const posted = await rawRequest(
    gateway.port(),
    `POST /h2c HTTP/1.1\r\nHost: a\r\n${offer.join("\r\n")}\r\nContent-Length: 5\r\n\r\nhello`,
  );
  assert.deepEqual(posted.statuses, [200]);
  assert.equal(backend.received.at(-1)?.body, "hello");
  assert.equal(backend.received.at(-1)?.headers.upgrade, undefined);
  assert.equal(backend.received.at(-1)?.headers["http2-settings"], undefined);
});
