/**
 * `extAuthz` over HTTP with computed paths and bodies, redirects to a login page, and metadata for later policies.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Check {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

async function behind(
  t: TestContext,
  extAuthz: object,
  answer: (check: Check, response: ServerResponse) => void,
  more = {},
  clock = systemClock,
) {
  const checks: Check[] = [];
  const service = await backendFor(t, (request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const check = { method: request.method ?? "", url: request.url ?? "", headers: request.headers, body };
      checks.push(check);
      answer(check, response);
    });
  });
  const backend = await backendFor(t);
  const policies = { extAuthz: { url: `http://${service.host}/auth`, timeout: "30s", ...extAuthz }, ...more };
  const config = { gateways: { default: { port: 0 } }, routes: [{ backends: [{ host: backend.host }], policies }] };
  const gateway = await gatewayFor(t, JSON.stringify(config), { clock });
  const send = (path: string, headers: Record<string, string> = {}) =>
    fetch(`${gateway.url()}${path}`, { headers, redirect: "manual" });
  return { send, checks, backend };
}

test("a client that is not signed in is redirected, with the cookies of the service; other denials are not", async (t) => {
  const { send, checks, backend } = await behind(
    t,
    { headers: ["cookie"], redirect: '"/oauth2/start?rd=" + url.encode(request.path)' },
    ({ headers }, response) => {
      const status = headers.cookie === "session=good" ? 202 : headers.cookie === "session=other" ? 403 : 401;
      response.writeHead(status, { "set-cookie": "csrf=1", "www-authenticate": "Basic" }).end("denied");
    },
  );
  const missing = await send("/app/a", { accept: "text/html", authorization: "Bearer x" });
  assert.deepEqual([missing.status, missing.headers.get("location")], [302, "/oauth2/start?rd=%2Fapp%2Fa"]);
  assert.equal(missing.headers.get("set-cookie"), "csrf=1");
  assert.equal(missing.headers.get("www-authenticate"), null);
  assert.equal(checks[0]?.headers.authorization, undefined, "only the listed headers are sent");
  const other = await send("/app/a", { cookie: "session=other" });
  assert.deepEqual([other.status, await other.text()], [403, "denied"]);
  assert.equal(backend.received.length, 0);
  assert.equal((await send("/app/a", { cookie: "session=good" })).status, 200);
  assert.equal(backend.received.length, 1);
});

test("a redirect is computed for each request, also if the verdict is cached", async (t) => {
  const { send, checks } = await behind(
    t,
    { redirect: '"/start?rd=" + request.path', cache: { key: '"all"', ttl: "1m" } },
    (_check, response) => response.writeHead(401).end(),
  );
  assert.equal((await send("/a")).headers.get("location"), "/start?rd=/a");
  assert.equal((await send("/b")).headers.get("location"), "/start?rd=/b");
  assert.equal(checks.length, 1);
});

test("a location that is no header value is not sent: the denial stays", async (t) => {
  const { send } = await behind(t, { redirect: '"/start\\r\\nx-evil: 1"' }, (_check, response) =>
    response.writeHead(401).end("denied"),
  );
  const denied = await send("/a");
  assert.deepEqual([denied.status, denied.headers.get("location"), denied.headers.get("x-evil")], [401, null, null]);
});

test("path, method, and body are computed, and later policies read the metadata", async (t) => {
  const { send, checks, backend } = await behind(
    t,
    {
      path: '"/check?route=" + request.path',
      method: "POST",
      body: '{"user": request.headers["x-user"]}',
      context: { "content-type": '"application/json"' },
      metadata: {
        team: "json(response.body).team",
        level: 'response.headers["x-level"]',
        absent: "json(response.body).none",
      },
    },
    (_check, response) => response.writeHead(200, { "x-level": "gold" }).end('{"team": "blue"}'),
    {
      transformations: {
        request: { set: { "x-team": "extauthz.team", "x-level": "extauthz.level", "x-absent": "extauthz.absent" } },
      },
    },
  );
  assert.equal((await send("/a", { "x-user": "ada", "x-team": "forged", "x-absent": "forged" })).status, 200);
  const [check] = checks;
  assert.deepEqual([check?.method, check?.url, check?.body], ["POST", "/check?route=/a", '{"user":"ada"}']);
  assert.equal(check?.headers["content-type"], "application/json");
  const seen = backend.received[0]?.headers ?? {};
  assert.deepEqual([seen["x-team"], seen["x-level"], seen["x-absent"]], ["blue", "gold", undefined]);
});

for (const [name, config] of [
  ["path", { path: 'request.headers["x-none"]' }],
  ["path that is no path", { path: '"http://evil.example/"' }],
  ["body", { method: "POST", body: "jwt.sub" }],
] as const)
  test(`a ${name} without a value fails the check, and nothing passes`, async (t) => {
    const { send, checks, backend } = await behind(t, config, (_check, response) => response.end());
    assert.equal((await send("/a")).status, 503);
    assert.deepEqual([checks.length, backend.received.length], [0, 0]);
  });

test("a token endpoint as the service: a form, claims of the token, and a cache that follows its expiry", async (t) => {
  const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  let lifetimeSeconds = 3600;
  const { send, checks, backend } = await behind(
    t,
    {
      method: "POST",
      headers: [],
      context: { "content-type": '"application/x-www-form-urlencoded"' },
      body: 'form.encode({"grant_type": "exchange", "subject_token": request.headers["authorization"].split(" ")[1]})',
      metadata: {
        token: "json(response.body).access_token",
        expires: "unvalidatedJwtPayload(json(response.body).access_token).exp",
      },
      cache: { key: ['request.headers["authorization"]', "request.path"], ttl: "extauthz.expires - 5", maxEntries: 10 },
    },
    (_check, response) => {
      const exp = Math.floor(Date.now() / 1000) + lifetimeSeconds;
      response.end(JSON.stringify({ access_token: `e30.${encoded({ sub: "ann", exp })}.x` }));
    },
    { transformations: { request: { set: { authorization: '"Bearer " + extauthz.token' } } } },
  );
  const authorization = "Bearer a&b";
  assert.equal((await send("/a", { authorization })).status, 200);
  assert.equal(checks[0]?.body, "grant_type=exchange&subject_token=a%26b");
  assert.equal(checks[0]?.headers["content-type"], "application/x-www-form-urlencoded");
  assert.match(backend.received[0]?.headers.authorization ?? "", /^Bearer e30\./);
  assert.equal((await send("/a", { authorization })).status, 200);
  assert.equal(checks.length, 1, "the same user and path");
  await send("/b", { authorization });
  await send("/a", { authorization: "Bearer c" });
  assert.equal(checks.length, 3, "another path, and another user");
  lifetimeSeconds = 0;
  await send("/c", { authorization });
  await send("/c", { authorization });
  assert.equal(checks.length, 5, "a token that has expired is not cached");
});

/** The lifetime that the service returns, as seconds or Unix time, and for how many seconds the verdict is used. */
const LIFETIMES: readonly [expires: (nowSeconds: number) => unknown, usedSeconds: number][] = [
  [() => 60, 60],
  [() => "60", 60],
  [() => 300, 300],
  [() => 301, 300],
  [() => 86_400, 300],
  [() => 999_999_999, 300],
  [(now) => now + 60, 60],
  [(now) => now + 300, 300],
  [(now) => now + 301, 300],
  [(now) => now + 86_400, 300],
  [() => Number.MAX_SAFE_INTEGER, 300],
  // Numbers that JSON may round are not read, so the lifetime is unknown.
  [() => 2 ** 53, 0],
  [() => 1e300, 0],
  [(now) => now, 0],
  [(now) => now - 60, 0],
  [() => 1_000_000_000, 0],
  [() => 0, 0],
  [() => -60, 0],
  [() => "soon", 0],
  [() => null, 0],
  [() => ({}), 0],
  [() => [], 0],
  [() => 0.5, 0.5],
];
test("a verdict is used for its computed lifetime, and at most for 5 minutes", async (t) => {
  const clock = fakeClock();
  let expires: unknown;
  const { send, checks } = await behind(
    t,
    {
      metadata: { expires: "json(response.body).expires" },
      cache: { key: "request.path", ttl: "extauthz.expires" },
    },
    (_check, response) => response.end(JSON.stringify({ expires })),
    {},
    clock,
  );
  for (const [row, [expiresAt, usedSeconds]] of LIFETIMES.entries()) {
    expires = expiresAt(clock.now() / 1000);
    const isUsed = async (): Promise<boolean> => {
      const before = checks.length;
      assert.equal((await send(`/${row}`)).status, 200);
      return checks.length === before;
    };
    const used = [await isUsed()];
    if (usedSeconds > 0) {
      await clock.advance(usedSeconds * 1000 - 1);
      used.push(await isUsed());
      await clock.advance(1);
    }
    used.push(await isUsed());
    assert.deepEqual(used, usedSeconds > 0 ? [false, true, false] : [false, false], JSON.stringify(expires));
  }
});

test("a service on a unix socket gets the host and the path of the configuration", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-socket-"));
  const socket = join(folder, "service.sock");
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.headers.host} ${request.url}`);
    response.end(JSON.stringify({ user: "ann" }));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const backend = await backendFor(t);
  const extAuthz = {
    url: "http://local.sock",
    socket,
    path: '"/whois?addr=" + source.address',
    metadata: { user: "json(response.body).user" },
    timeout: "30s",
  };
  const policies = { extAuthz, transformations: { request: { set: { "x-user": "extauthz.user" } } } };
  const config = { gateways: { default: { port: 0 } }, routes: [{ backends: [{ host: backend.host }], policies }] };
  const gateway = await gatewayFor(t, JSON.stringify(config));
  assert.equal((await fetch(gateway.url())).status, 200);
  assert.deepEqual(seen, ["local.sock /whois?addr=127.0.0.1"]);
  assert.equal(backend.received[0]?.headers["x-user"], "ann");
});
