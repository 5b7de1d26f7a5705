/**
 * A route that rejects, limits, charges, or guards is protected whatever policy does it: no ambiguous spelling of its
 * paths reaches a backend around it, and no header that a backend may read as another path or method.
 */
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync } from "node:crypto";
import { connect as connectHttp2 } from "node:http2";
import { test } from "node:test";
import { stringify } from "yaml";
import { OVERRIDE_HEADERS } from "../../src/http/header-rules.ts";
import { policies } from "../../src/policies/index.ts";
import type { TestBackend } from "../support/backend.ts";
import type { TestGateway } from "../support/gateway.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

interface Sample {
  readonly route?: object;
  readonly gateway?: object;
  readonly backend?: object;
  /** Replaces the backend of the route. */
  readonly instead?: object;
}

const HTPASSWD = `alice:{SHA}${createHash("sha1").update("right").digest("base64")}`;
const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const KEY_SET = JSON.stringify({
  keys: [{ ...publicKey.export({ format: "jwk" }), kid: "1", alg: "ES256", use: "sig" }],
});
const JWT = { issuer: "https://issuer.test", audiences: ["a"], jwks: { inline: KEY_SET } };
const KEYS = { keys: [{ key: "right-key" }] };
const LIMIT = { requests: 1000, unit: "Hours" };
const BUDGET = { name: "all", tokens: 1000, per: "day" };
const GUARD = { regex: { action: "reject", rules: [{ pattern: "secret" }] } };
const DEMO_MODELS = (policies: object) => ({
  ai: { models: [{ name: "m", provider: { demo: {} }, policies }] },
});
const TOOLS = (tools: object) => ({
  mcp: { targets: [{ name: "t", stdio: { cmd: "cat" }, ...tools }] },
});

const PROTECTED: Readonly<Record<string, Sample>> = {
  csrf: { route: { csrf: {} } },
  mcpAuthentication: {
    route: { mcpAuthentication: { ...JWT, resourceMetadata: { resource: "https://mcp.test/guarded" } } },
  },
  jwtAuth: { route: { jwtAuth: JWT } },
  oidc: {
    route: {
      oidc: {
        issuer: "https://issuer.test",
        clientId: "c",
        redirectUri: "https://app.test/callback",
      },
    },
  },
  basicAuth: { route: { basicAuth: { htpasswd: HTPASSWD } } },
  apiKey: { route: { apiKey: KEYS } },
  "apiKey of the gateway": { gateway: { apiKey: { ...KEYS, mode: "permissive" } } },
  authorization: { route: { authorization: { rules: ["true"] } } },
  "authorization of a backend": { backend: { authorization: { rules: ["true"] } } },
  "authorization of a model": { instead: DEMO_MODELS({ authorization: { rules: ["true"] } }) },
  extAuthz: { route: { extAuthz: { host: "127.0.0.1:1" } } },
  mcpAuthorization: { instead: TOOLS({}), route: { mcpAuthorization: { rules: ["true"] } } },
  mcpGuardrails: {
    instead: TOOLS({}),
    route: { mcpGuardrails: { processors: [{ host: "127.0.0.1:1", methods: { "tools/call": "request" } }] } },
  },
  budgets: { route: { budgets: { limits: [BUDGET] } } },
  "budgets of the gateway": { gateway: { budgets: { limits: [{ ...BUDGET, hard: false }] } } },
  "budgets of a model": { instead: DEMO_MODELS({ budgets: { limits: [BUDGET] } }) },
  rateLimit: { route: { rateLimit: { local: [LIMIT] } } },
  "rateLimit of tokens": { route: { rateLimit: { local: [{ tokens: 1000, unit: "Hours" }] } } },
  "rateLimit of the gateway": { gateway: { rateLimit: { local: [LIMIT] } } },
  "rateLimit of a model": { instead: DEMO_MODELS({ rateLimit: { local: [LIMIT] } }) },
  "rateLimit with a shadow": { route: { rateLimit: { local: [{ ...LIMIT, mode: "shadow" }, LIMIT] } } },
  "rateLimit by a service": {
    route: {
      rateLimit: {
        global: {
          host: "127.0.0.1:1",
          domain: "d",
          failureMode: "open",
          descriptors: [{ entries: [{ key: "k", value: "client.address" }] }],
        },
      },
    },
  },
  buffer: { route: { buffer: { request: { maxBytes: 1000 } } } },
  extProc: { route: { extProc: { host: "127.0.0.1:1" } } },
  ai: { instead: { ai: { provider: { demo: {} } } }, route: { ai: { promptGuard: { request: [GUARD] } } } },
  "ai on responses": {
    instead: { ai: { provider: { demo: {} } } },
    route: { ai: { promptGuard: { response: [GUARD] } } },
  },
  directResponse: { route: { directResponse: { status: 404 } } },
  "directResponse on a condition": {
    route: { directResponse: { conditional: [{ condition: "random() < 0.5", status: 503 }] } },
  },
  "tools: argumentGuard": { instead: TOOLS({ tools: { argumentGuard: [GUARD] } }) },
  "tools: resultGuard": { instead: TOOLS({ tools: { resultGuard: [GUARD] } }) },
  "tools: allow": { instead: TOOLS({ tools: { allow: ["a"] } }) },
};

const OPEN: Readonly<Record<string, Sample>> = {
  none: {},
  cors: { route: { cors: { allowOrigins: ["https://app.test"] } } },
  "rateLimit in shadow mode": { route: { rateLimit: { local: [{ ...LIMIT, mode: "shadow" }] } } },
  sessionPersistence: { route: { sessionPersistence: { type: "cookie" } } },
  "ai without guards": { instead: { ai: { provider: { demo: {} } } }, route: { ai: { defaults: { n: 1 } } } },
  backendAuth: { route: { backendAuth: { key: "backend-key" } } },
  transformations: { route: { transformations: { request: { set: { "x-a": '"b"' } } } } },
  requestHeaderModifier: { route: { requestHeaderModifier: { set: { "x-a": "b" } } } },
  urlRewrite: { route: { urlRewrite: { authority: "a.test" } } },
  requestMirror: { route: { requestMirror: [{ host: "127.0.0.1:1", percent: 1 }] } },
  requestRedirect: { route: { requestRedirect: { scheme: "https" } } },
  delay: { route: { delay: { duration: "1ms" } } },
  directResponse: { route: { directResponse: { status: 200 } } },
  responseHeaderModifier: { route: { responseHeaderModifier: { set: { "x-a": "b" } } } },
  timeout: { route: { timeout: { requestTimeout: "10s" } } },
  retry: { route: { retry: { attempts: 1 } } },
  backendTLS: { route: { backendTLS: { insecure: true } } },
  mcp: { instead: TOOLS({}) },
};

/** Only for `service` backends of a cluster, where it is tested. */
const ELSEWHERE = ["endpointPicker"];

test("there is a sample of every policy", () => {
  const named = [...Object.values(PROTECTED), ...Object.values(OPEN)].flatMap(
    ({ route = {}, gateway = {}, backend = {} }) => [route, gateway, backend].flatMap(Object.keys),
  );
  const missing = policies.map(({ kind }) => kind).filter((kind) => !named.includes(kind) && !ELSEWHERE.includes(kind));
  assert.deepEqual(missing, []);
});

const AROUND = [
  "/guarded;a/x",
  "/guarded%3Ba/x",
  "/;/guarded/x",
  "/guarded%20/x",
  "/guarded./x",
  "/guarded%2Fx",
  "/%2567uarded/x",
];

/** Every name in the spellings that servers fold to it. */
function spellings(): string[] {
  const capital = (name: string): string => name.replace(/(?<![a-z])[a-z]/g, (letter) => letter.toUpperCase());
  return [...OVERRIDE_HEADERS].flatMap((name) => [
    name,
    capital(name),
    name.toUpperCase(),
    name.replaceAll("-", "_"),
    capital(name).replaceAll("-", "_"),
    name.replace("-", "."),
    name.replace(/-([^-]*)$/, "_$1"),
  ]);
}

const isOverride = (name: string): boolean => OVERRIDE_HEADERS.has(name.toLowerCase().replace(/[^a-z0-9]/g, "-"));

async function openBackend(gateway: TestGateway, backend: TestBackend, name: string): Promise<readonly string[]> {
  const lines = spellings().map((header) => `${header}: DELETE`);
  const { status } = await rawRequest(gateway.port(name), requestText("GET /open/x HTTP/1.1", lines));
  assert.equal(status, 200, name);
  const names = backend.received.at(-1)?.rawHeaders.filter((_, i) => i % 2 === 0) ?? [];
  return names.filter(isOverride);
}

function configFor(samples: Readonly<Record<string, Sample>>, backend: TestBackend): string {
  const list = Object.values(samples);
  const gateways = Object.fromEntries(
    list.map(({ gateway }, i) => [
      `g${i}`,
      { port: 0, address: "127.0.0.1", ...(gateway ? { policies: gateway } : {}) },
    ]),
  );
  const routes = list.flatMap(({ route, backend: own, instead }, i) => [
    {
      name: `guarded${i}`,
      gateways: [`g${i}`],
      matches: [{ path: { pathPrefix: "/guarded" } }],
      ...(route ? { policies: route } : {}),
      backends: [instead ?? { host: backend.host, ...(own ? { policies: own } : {}) }],
    },
    { name: `open${i}`, gateways: [`g${i}`], backends: [{ host: backend.host }] },
  ]);
  const answers = (route: object | undefined) =>
    route !== undefined && ("directResponse" in route || "requestRedirect" in route);
  for (const route of routes) if (answers((route as { policies?: object }).policies)) route.backends = [];
  return stringify({ gateways, routes });
}

test("around a protected route there is no other spelling of its path, and no override header", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, configFor(PROTECTED, backend));
  for (const [i, name] of Object.keys(PROTECTED).entries()) {
    for (const path of AROUND) {
      const { status } = await rawRequest(gateway.port(`g${i}`), requestText(`GET ${path} HTTP/1.1`));
      assert.equal(status, 400, `${name}: ${path}`);
    }
    assert.deepEqual(await openBackend(gateway, backend, `g${i}`), [], name);
  }
});

test("a listener without a protected route forwards paths and headers unchanged", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, configFor(OPEN, backend));
  const all = spellings().map((name) => name.toLowerCase());
  for (const [i, name] of Object.keys(OPEN).entries()) {
    for (const path of AROUND.filter((one) => one !== "/;/guarded/x")) {
      const { status } = await rawRequest(gateway.port(`g${i}`), requestText(`GET ${path} HTTP/1.1`));
      assert.equal(status, 200, `${name}: ${path}`);
    }
    const sent = (await openBackend(gateway, backend, `g${i}`)).map((one) => one.toLowerCase());
    assert.deepEqual(sent.sort(), all.sort(), name);
  }
});

const limited = (key: string): string => `rateLimit: { local: [{ requests: 1000, unit: Hours, key: '${key}' }] }`;

test("a limited route accepts its own ambiguous paths, unless the limit reads the path", async (t) => {
  const backend = await backendFor(t);
  const rejecting = (condition: string): string =>
    `directResponse: { conditional: [{ condition: '${condition}', status: 404 }] }`;
  const cases: [policy: string, status: number][] = [
    [limited("client.address"), 200],
    [limited("request.headers.path"), 200],
    [limited("request.path"), 400],
    [limited("request.uri"), 400],
    [limited("request.pathAndQuery"), 400],
    [limited("string(request.rawPath)"), 400],
    ["budgets: { limits: [{ name: a, tokens: 5, per: day, key: request.path }] }", 400],
    ["budgets: { limits: [{ name: b, tokens: 5, per: day }] }", 200],
    [rejecting('request.path == "/internal/x"'), 400],
    [rejecting('request.method == "DELETE"'), 200],
    ["apiKey: { mode: permissive, keys: [{ key: right-key }] }", 400],
  ];
  const gateway = await gatewayFor(
    t,
    `gateways: { ${cases.map((_, i) => `g${i}: { port: 0, address: 127.0.0.1 }`).join(", ")} }
routes:
${cases.map(([policy], i) => `  - { gateways: [g${i}], policies: { ${policy} }, backends: [{ host: "${backend.host}" }] }`).join("\n")}
`,
  );
  for (const [i, [policy, status]] of cases.entries())
    for (const path of ["/internal;a/x", "/group%2Fproject"])
      assert.equal(
        (await rawRequest(gateway.port(`g${i}`), requestText(`GET ${path} HTTP/1.1`))).status,
        status,
        policy,
      );
});

test("a configuration that names an override header gets it, in this spelling and on this route only", async (t) => {
  const backend = await backendFor(t);
  const on = (path: string, more: string): string =>
    `  - { matches: [{ path: { pathPrefix: ${path} } }], backends: [{ host: "${backend.host}" }], ${more} }`;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1, policies: { transformations: { request: { set: { x-rewrite-url: request.path } } } } } }
routes:
  - { matches: [{ path: { pathPrefix: /match }, headers: [{ name: X-HTTP-Method, exact: MERGE }] }], backends: [{ host: "${backend.host}" }] }
${on("/rule", `policies: { authorization: { rules: ['request.headers["x-original-url"] != "/admin"'] } }`)}
${on("/cors", `policies: { cors: { allowOrigins: ["*"], allowHeaders: [X-Method-Override] } }`)}
${on("/set", `policies: { transformations: { request: { set: { x-original-uri: '"/fixed"' } } } }`)}
${on("/fixed", `policies: { requestHeaderModifier: { set: { X-Original-Method: GET } } }`)}
${on("/removed", `policies: { requestHeaderModifier: { remove: [X-HTTP-Method-Override] } }`)}
${on("/", "policies: {}")}
`,
  );
  const kept = async (path: string): Promise<Record<string, string>> => {
    const lines = spellings().map((header) => `${header}: MERGE`);
    const sent = requestText(`GET ${path} HTTP/1.1`, [...lines]);
    assert.ok((await rawRequest(gateway.port(), sent)).status < 500);
    const raw = backend.received.at(-1)?.rawHeaders ?? [];
    assert.equal(backend.received.at(-1)?.url, path);
    const found: Record<string, string> = {};
    for (let i = 0; i < raw.length; i += 2) if (isOverride(raw[i] ?? "")) found[raw[i] ?? ""] = raw[i + 1] ?? "";
    return found;
  };
  const always = (path: string) => ({ "x-rewrite-url": path });
  assert.deepEqual(await kept("/rule"), { "x-original-url": "MERGE", ...always("/rule") });
  assert.deepEqual(await kept("/cors"), { "x-method-override": "MERGE", ...always("/cors") });
  assert.deepEqual(await kept("/set"), { "x-original-uri": "/fixed", ...always("/set") });
  assert.deepEqual(await kept("/fixed"), { "x-original-method": "GET", ...always("/fixed") });
  assert.deepEqual(await kept("/removed"), always("/removed"));
  assert.deepEqual(await kept("/other"), always("/other"));
  const matched = await fetch(`${gateway.url()}/match`, { headers: { "X-HTTP-Method": "MERGE" } });
  assert.equal(matched.status, 200);
  assert.equal(backend.received.at(-1)?.headers["x-http-method"], "MERGE");
  await fetch(`${gateway.url()}/other`, { headers: { "X-HTTP-Method": "MERGE" } });
  assert.equal(backend.received.at(-1)?.headers["x-http-method"], undefined);
});

/** Each way to name a header in a route, and the part of the route. */
const NAMING: Readonly<Record<string, (name: string) => object>> = {
  "a match": (name) => ({ matches: [{ path: { pathPrefix: "/named" }, headers: [{ name, regex: ".*" }] }] }),
  "a rule": (name) => ({ policies: { authorization: { rules: [`!("${name}" in request.headers) || true`] } } }),
  cors: (name) => ({ policies: { cors: { allowOrigins: ["*"], allowHeaders: [name] } } }),
  "a transformation": (name) => ({ policies: { transformations: { request: { set: { [name]: '"/x"' } } } } }),
  "a header modifier": (name) => ({ policies: { requestHeaderModifier: { set: { [name]: "x" } } } }),
  "a limit": (name) => ({
    policies: { rateLimit: { local: [{ ...LIMIT, key: `request.headers["${name}"]` }] } },
  }),
};

test("what one route names passes on no other route, with and without policies of its own", async (t) => {
  const backend = await backendFor(t);
  const names = [...OVERRIDE_HEADERS];
  const ways = Object.entries(NAMING);
  const others = { "/plain": {}, "/protected": { rateLimit: { local: [LIMIT] } }, "/shaped": { timeout: {} } };
  const on = (i: number, path: string, more: object) => ({
    gateways: [`g${i}`],
    matches: [{ path: { pathPrefix: path } }],
    backends: [{ host: backend.host }],
    ...more,
  });
  const gateways = Object.fromEntries(ways.map((_, i) => [`g${i}`, { port: 0, address: "127.0.0.1" }]));
  const routes = ways.flatMap(([, named], i) => [
    on(i, "/named", named(names[i % names.length] as string)),
    ...Object.entries(others).map(([path, policies]) => on(i, path, { policies })),
  ]);
  const gateway = await gatewayFor(t, stringify({ gateways, routes }));
  for (const [i, [way]] of ways.entries())
    for (const path of Object.keys(others)) {
      const lines = spellings().map((header) => `${header}: DELETE`);
      const { status } = await rawRequest(gateway.port(`g${i}`), requestText(`GET ${path} HTTP/1.1`, lines));
      assert.equal(status, 200, way);
      const sent = backend.received.at(-1)?.rawHeaders.filter((_, at) => at % 2 === 0) ?? [];
      assert.deepEqual(sent.filter(isOverride), [], `${way}, ${path}`);
    }
});

const CONFIG = (backend: TestBackend, policy: string): string =>
  `gateways: { default: { port: 0, address: 127.0.0.1 }, plain: { port: 0, address: 127.0.0.1 } }
routes:
  - { matches: [{ path: { pathPrefix: /guarded } }], policies: { ${policy} }, backends: [{ host: "${backend.host}" }] }
  - { gateways: [default, plain], backends: [{ host: "${backend.host}" }] }
`;

const passes = async (gateway: TestGateway, backend: TestBackend, listener?: string): Promise<boolean> => {
  const response = await fetch(`${gateway.url(listener)}/x`, { headers: { "X-Original-URL": "/guarded" } });
  assert.equal(response.status, 200);
  return backend.received.at(-1)?.headers["x-original-url"] !== undefined;
};

test("a reload changes both, and other listeners keep the headers", async (t) => {
  const backend = await backendFor(t);
  const [open, closed] = [CONFIG(backend, "timeout: {}"), CONFIG(backend, "directResponse: { status: 403 }")];
  const gateway = await gatewayFor(t, open);
  assert.equal(await passes(gateway, backend), true);
  for (const [config, isOpen] of [
    [closed, false],
    [open, true],
    [closed, false],
  ] as const) {
    assert.equal(await gateway.reload(config), "loaded");
    assert.equal(await passes(gateway, backend), isOpen);
    assert.equal(await passes(gateway, backend, "plain"), true);
  }
});

test("HTTP/2 requests, forward proxies, traces, and records", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 }, proxy: { port: 0, address: 127.0.0.1, forwardProxy: true } }
routes:
  - { gateways: [default, proxy], matches: [{ path: { pathPrefix: /guarded } }], policies: { ${limited("client.address")} }, backends: [{ host: "${backend.host}" }] }
  - { gateways: [default], backends: [{ host: "${backend.host}" }] }
  - { gateways: [proxy], backends: [{ dynamic: { ports: [${backend.port}], allow: [127.0.0.1] } }] }
`,
  );
  const overrides = (): string[] => Object.keys(backend.received.at(-1)?.headers ?? {}).filter(isOverride);

  const session = connectHttp2(gateway.url());
  t.after(() => session.close());
  const headers = Object.fromEntries(spellings().map((name) => [name.toLowerCase(), "DELETE"]));
  const stream = session.request({ ":path": "/x", ...headers });
  const status = await new Promise((resolve, reject) => {
    stream.on("response", (head) => resolve(head[":status"]));
    stream.on("error", reject);
  });
  stream.resume();
  assert.equal(status, 200);
  assert.deepEqual(overrides(), []);

  const target = `GET http://${backend.host}/x HTTP/1.1`;
  const lines = [`Host: ${backend.host}`, "X-Original-URL: /guarded", "x_http_method_override: DELETE"];
  const proxied = await rawRequest(
    gateway.port("proxy"),
    `${target}\r\n${lines.join("\r\n")}\r\nConnection: close\r\n\r\n`,
  );
  assert.equal(proxied.status, 200);
  assert.deepEqual(overrides(), []);

  const events = await traceOf(gateway, () =>
    fetch(`${gateway.url()}/x`, { headers: { "X-Original-URL": "/guarded" } }),
  );
  const removed = messagesOf(events, "policyEvent").filter(({ kind }) => kind === "overrideHeaders");
  assert.deepEqual(
    removed.map(({ details }) => details),
    [{ removed: ["x-original-url"] }],
  );
});
