/**
 * `extAuthz`: a service of the operator decides, over Envoy's check API and over plain HTTP; without an answer nothing passes.
 */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { test } from "node:test";
import { type AuthService, startAuthService } from "../support/ext-authz/service.ts";
import type { TestGateway } from "../support/gateway.ts";
import { closing } from "../support/rate-limit-service/closing.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const OK = { status: { code: 0 }, okResponse: {} };
const header = (key: string, value: string) => ({ header: { key, value } });

async function echo(response: Response): Promise<Record<string, string>> {
  return ((await response.json()) as { headers: Record<string, string> }).headers;
}

async function behind(
  t: TestContext,
  settings: (service: AuthService) => string,
  answer: AuthService["answer"],
  more = "",
): Promise<{ gateway: TestGateway; service: AuthService; calls(): number }> {
  const onEnd = closing(t);
  const service = await startAuthService(answer);
  onEnd(service.close);
  let calls = 0;
  const backend = await backendFor(t, (request, response) => {
    calls += 1;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ headers: request.headers }));
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ name: r, backends: [{ host: "${backend.host}" }], policies: { extAuthz: { ${settings(service)} }${more} } }]
`,
  );
  return { gateway, service, calls: () => calls };
}

test("the service gets the request and its verdict decides, with what it adds and removes", async (t) => {
  const { gateway, service, calls } = await behind(
    t,
    ({ host }) => `host: "${host}", timeout: 30s, context: { team: 'request.headers["x-team"]' }`,
    ({ attributes }) =>
      attributes.request.http.headers.authorization === "Bearer good"
        ? {
            status: { code: 0 },
            okResponse: {
              headers: [
                header("x-user", "alice"),
                header("host", "evil.test"),
                header("content-length", "7"),
                header("bad name", "x"),
              ],
              headersToRemove: ["x-internal", "x-forwarded-for"],
              responseHeadersToAdd: [header("x-checked", "yes")],
            },
          }
        : {
            status: { code: 7, message: "no such user" },
            deniedResponse: {
              status: { code: 401 },
              headers: [header("www-authenticate", "Basic"), header("transfer-encoding", "chunked")],
              body: "go away",
            },
          },
  );
  const good = await fetch(`${gateway.url()}/a/b?c=1`, {
    headers: { authorization: "Bearer good", "x-internal": "1", "x-user": "forged", "x-team": "red" },
  });
  assert.deepEqual([good.status, good.headers.get("x-checked")], [200, "yes"]);
  const got = await echo(good);
  assert.deepEqual([got["x-user"], got["x-internal"], got["x-forwarded-for"]], ["alice", undefined, "127.0.0.1"]);
  assert.notEqual(got.host, "evil.test");
  const [check] = service.checks;
  const { http } = check?.attributes.request ?? {};
  assert.deepEqual([http?.method, http?.path, http?.id], ["GET", "/a/b?c=1", good.headers.get("x-request-id")]);
  assert.equal(check?.attributes.source.address.socketAddress.address, "127.0.0.1");
  assert.deepEqual(check?.attributes.contextExtensions, { team: "red" });

  const bad = await fetch(gateway.url());
  assert.deepEqual(
    [bad.status, await bad.text(), bad.headers.get("www-authenticate"), bad.headers.get("x-gateway-error")],
    [401, "go away", "Basic", "authorization_denied"],
  );
  assert.equal(calls(), 1);
  await gateway.logged(`denied the request: no such user`);
});

for (const [name, answer] of [
  ["an error", () => "error" as const],
  ["no status", () => ({ okResponse: {} })],
  ["no answer in time", () => "never" as const],
] as const) {
  test(`nothing passes after ${name}, unless the failure mode is open`, async (t) => {
    const timeout = name === "no answer in time" ? "100ms" : "30s";
    const closed = await behind(t, ({ host }) => `host: "${host}", timeout: ${timeout}`, answer);
    const refused = await fetch(closed.gateway.url());
    assert.deepEqual([refused.status, refused.headers.get("x-gateway-error"), closed.calls()], [503, "not_ready", 0]);
    const open = await behind(
      t,
      ({ host }) => `host: "${host}", timeout: ${timeout}, failureMode: open, accept: [x-user]`,
      answer,
    );
    const passed = await fetch(open.gateway.url(), { headers: { "x-user": "forged" } });
    assert.equal(passed.status, 200);
    assert.equal((await echo(passed))["x-user"], undefined, "nobody vouched for it");
  });
}

test("only chosen headers go to the service, and only accepted ones come back", async (t) => {
  const { gateway, service } = await behind(
    t,
    ({ host }) => `host: "${host}", timeout: 30s, headers: [x-a], accept: [x-user, x-group]`,
    () => ({ status: { code: 0 }, okResponse: { headers: [header("x-user", "alice"), header("x-admin", "yes")] } }),
  );
  const got = await echo(
    await fetch(gateway.url(), { headers: { "x-a": "1", authorization: "Bearer secret", "x-group": "forged" } }),
  );
  assert.deepEqual(service.checks[0]?.attributes.request.http.headers, { "x-a": "1" });
  assert.deepEqual([got["x-user"], got["x-admin"], got["x-group"]], ["alice", undefined, undefined]);
});

test("verdicts are remembered by key, refusals too, and never without a key", async (t) => {
  const { gateway, service } = await behind(
    t,
    ({ host }) => `host: "${host}", timeout: 30s, cache: { key: 'request.headers["x-user"]', ttl: 5m }`,
    ({ attributes }) => (attributes.request.http.headers["x-user"] === "eve" ? { status: { code: 7 } } : OK),
  );
  const ask = async (user?: string): Promise<number> =>
    (await fetch(gateway.url(), { headers: user === undefined ? {} : { "x-user": user } })).status;
  assert.deepEqual([await ask("alice"), await ask("alice"), await ask("eve"), await ask("eve")], [200, 200, 403, 403]);
  assert.equal(service.checks.length, 2);
  assert.deepEqual([await ask(), await ask()], [200, 200]);
  assert.equal(service.checks.length, 4);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_ext_authz_total\{owner="route r",result="denied"\} 2/);
});

test("rules come first: the service is not asked for what they deny; a dry run does not ask and says so", async (t) => {
  const { gateway, service } = await behind(
    t,
    ({ host }) => `host: "${host}", timeout: 30s`,
    () => OK,
    `, authorization: { rules: ['request.path == "/yes"'] }`,
  );
  assert.equal((await fetch(`${gateway.url()}/no`)).status, 403);
  assert.equal(service.checks.length, 0);
  assert.equal((await fetch(`${gateway.url()}/yes`)).status, 200);
  assert.equal(service.checks.length, 1);
  const answer = await fetch(`${gateway.adminUrl}/debug/what-if`, {
    method: "POST",
    body: JSON.stringify({ request: { url: "/yes" } }),
  });
  const { policies } = (await answer.json()) as { policies: { policy: string; reason?: string }[] };
  assert.match(policies.find(({ policy }) => policy === "extAuthz")?.reason ?? "", /not asked in a dry run/);
  assert.equal(service.checks.length, 1);
});

test("over HTTP: 2xx admits, 5xx is a failure, everything else is the answer", async (t) => {
  const asked: { url: string | undefined; headers: Record<string, unknown> }[] = [];
  const auth = await backendFor(t, (request, response) => {
    asked.push({ url: request.url, headers: request.headers });
    const { cookie } = request.headers;
    if (cookie === "good") response.writeHead(204, { "x-user": "alice", "x-other": "no" }).end();
    else if (cookie === "broken") response.writeHead(500).end();
    else response.writeHead(302, { location: "https://login.test/", "x-secret": "no", "set-cookie": "a=1" }).end();
  });
  const { gateway, calls } = await behind(
    t,
    () => `url: "http://${auth.host}/check", timeout: 30s, accept: [x-user]`,
    () => OK,
  );
  const ask = (cookie: string) =>
    fetch(`${gateway.url()}/p?q=1`, { method: "POST", redirect: "manual", headers: { cookie, "x-user": "forged" } });
  const good = await ask("good");
  assert.equal(good.status, 200);
  const got = await echo(good);
  assert.deepEqual([got["x-user"], got["x-other"]], ["alice", undefined]);
  assert.equal(asked[0]?.url, "/check");
  assert.deepEqual(
    ["method", "uri", "for"].map((name) => asked[0]?.headers[`x-forwarded-${name}`]),
    ["POST", "/p?q=1", "127.0.0.1"],
  );
  const login = await ask("none");
  assert.deepEqual(
    [login.status, login.headers.get("location"), login.headers.get("set-cookie"), login.headers.get("x-secret")],
    [302, "https://login.test/", "a=1", null],
  );
  assert.equal((await ask("broken")).status, 503);
  assert.equal(calls(), 1);
});
