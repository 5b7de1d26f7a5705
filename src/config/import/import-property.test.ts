/**
 * Imports of generated configurations: fields of each format, in any combination and with any values. The result is
 * always valid, and a protection is never missing without a closed scope.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../../base/sliced-work.ts";
import { yamlText } from "../../base/yaml-text.ts";
import { loadConfig } from "../load/load.ts";
import { importAgentgateway } from "./agentgateway.ts";
import { asList, asObject, type Conversion, isObject, protectionIn, type Values } from "./conversion.ts";
import { type Check, dropInvalid } from "./drop-invalid.ts";
import { importLitellm } from "./litellm.ts";
import { importMcpServers } from "./mcp-servers.ts";
import { importSupergateway } from "./supergateway.ts";

const SEED = 37;
/** Each run loads a configuration once per problem. IMPORT_RUNS sets a larger number. */
const RUNS = Number(process.env.IMPORT_RUNS ?? 5);

const check: Check = (config, environment) => {
  const loaded = finish(loadConfig([{ file: "t", text: yamlText(config) }], environment));
  return loaded.ok ? [] : loaded.problems;
};

/** Imports, and asserts that the result is valid. Errors of the import itself must be sentences for the user. */
function imported(convert: () => Conversion): Conversion | undefined {
  let conversion: Conversion;
  try {
    conversion = convert();
  } catch (error) {
    assert.ok(error instanceof Error && !(error instanceof TypeError) && !(error instanceof RangeError), String(error));
    return undefined;
  }
  dropInvalid(conversion, check);
  const names = [...yamlText(conversion.config).matchAll(/\$\{(\w+)\}/g)].map(([, name = ""]) => name);
  const problems = ["1", "https://example.com"].map((text) =>
    check(conversion.config, Object.fromEntries(names.map((name) => [name, text]))),
  );
  assert.ok(
    problems.some((found) => found.length === 0),
    `${problems[0]?.map(({ path, message }) => `${path}: ${message}`).join("\n")}\n${yamlText(conversion.config)}`,
  );
  return conversion;
}

const scalar = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    1,
    3000,
    -1,
    1.5,
    "",
    "a",
    "1s",
    "/x",
    "http://localhost:1",
    "localhost:1",
  ),
  fc.constantFrom<unknown>("jwt.sub == 'a'", "${E}", "$E", "*", "GET", "strict", "true", "{"),
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    scalar,
    fc.array(tie("value"), { maxLength: 2 }),
    fc.dictionary(
      fc.constantFrom("a", "name", "key", "host", "rules", "path", "mode", "url", "value", "exact", "header", "target"),
      tie("value"),
      { maxKeys: 3, noNullPrototype: true },
    ),
  ),
}));

/** An object with some of the fields, each with a plausible value or any. */
function someOf(fields: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Values> {
  const withJunk = Object.fromEntries(
    Object.entries(fields).map(([name, plausible]) => [name, fc.oneof({ weight: 4, arbitrary: plausible }, value)]),
  );
  return fc.record(withJunk, { requiredKeys: [], noNullPrototype: true }) as fc.Arbitrary<Values>;
}

const list = (item: fc.Arbitrary<unknown>): fc.Arbitrary<unknown[]> => fc.array(item, { maxLength: 1 });
const oneOf = (...values: unknown[]): fc.Arbitrary<unknown> => fc.constantFrom(...values);
const rules = someOf({ rules: list(oneOf("jwt.sub == 'a'", { deny: "true" }, { require: "has(jwt.sub)" }, "(")) });

const PROTECTING: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  authorization: rules,
  mcpAuthorization: rules,
  jwtAuth: someOf({
    mode: oneOf("strict"),
    issuer: oneOf("https://i.example"),
    jwks: oneOf({ url: "https://i.example/k" }),
  }),
  apiKey: someOf({ mode: oneOf("strict"), keys: oneOf([{ key: "k-1234567890" }]) }),
  basicAuth: someOf({ htpasswd: oneOf({ file: "x" }), realm: oneOf("r") }),
  extAuthz: someOf({ host: oneOf("localhost:1"), protocol: oneOf({ http: { path: '"/check"' } }, { grpc: {} }) }),
  mcpGuardrails: someOf({
    processors: list(
      someOf({ kind: oneOf("remote"), host: oneOf("localhost:1"), methods: oneOf({ "tools/call": "full" }) }),
    ),
  }),
  localRateLimit: list(someOf({ maxTokens: oneOf(1, 10), tokensPerFill: oneOf(1), fillInterval: oneOf("1s", "7s") })),
  remoteRateLimit: someOf({ host: oneOf("localhost:1"), domain: oneOf("d"), descriptors: oneOf([]) }),
  csrf: someOf({ additionalOrigins: oneOf([]) }),
  mcpAuthentication: someOf({ issuer: oneOf("https://i.example"), provider: oneOf({ keycloak: {} }) }),
  oidc: someOf({ issuer: oneOf("https://i.example"), clientId: oneOf("c"), redirectURI: oneOf("https://x/cb") }),
  backendAuth: someOf({ key: oneOf("k"), passthrough: oneOf({}), gcp: oneOf({}), aws: oneOf({}), azure: oneOf({}) }),
};
const policies = someOf({
  ...PROTECTING,
  cors: someOf({ allowOrigins: oneOf(["*"]), allowCredentials: oneOf(true) }),
  timeout: someOf({ requestTimeout: oneOf("1s") }),
  retry: someOf({ attempts: oneOf(1, 3), codes: oneOf([503]) }),
  urlRewrite: someOf({ authority: oneOf({ full: "x" }), path: oneOf({ prefix: "/" }) }),
  requestMirror: someOf({ backend: oneOf({ host: "localhost:1" }), percentage: oneOf(0.5, 2) }),
  directResponse: someOf({ status: oneOf(200), body: oneOf("x"), headers: oneOf({ a: '"b"' }) }),
  transformations: someOf({ request: oneOf({ set: { a: "'b'" } }) }),
  ai: someOf({ promptGuard: oneOf({ request: [{ regex: { rules: [{ builtin: "ssn" }] } }] }), routes: oneOf({}) }),
});
const backend = someOf({
  host: oneOf("localhost:1"),
  mcp: someOf({
    targets: list(someOf({ name: oneOf("a", "b"), stdio: oneOf({ cmd: "x" }), mcp: oneOf({ host: "h" }) })),
  }),
  ai: someOf({ name: oneOf("a"), provider: oneOf({ openAI: {} }), policies }),
  aws: oneOf({ agentCore: { agentRuntimeArn: "arn:aws:bedrock-agentcore:us-west-2:1:runtime/a" } }),
  dynamic: oneOf({}),
  weight: oneOf(1),
  policies,
});
const route = someOf({
  name: oneOf("r"),
  hostnames: oneOf(["a.example"]),
  matches: list(someOf({ path: oneOf({ pathPrefix: "/a" }), headers: oneOf([{ name: "a", value: { exact: "b" } }]) })),
  policies,
  backends: list(backend),
});
const listener = someOf({
  name: oneOf("l"),
  hostname: oneOf("a.example", "*"),
  protocol: oneOf("HTTP", "HTTPS", "TLS", "TCP"),
  tls: someOf({ cert: oneOf("c.pem"), key: oneOf("k.pem"), root: oneOf("r.pem") }),
  policies,
  routes: list(route),
  tcpRoutes: list(
    someOf({ name: oneOf("t"), hostnames: oneOf(["a.example"]), backends: oneOf([{ host: "localhost:1" }]) }),
  ),
});
const agentgateway = someOf({
  config: someOf({
    adminAddr: oneOf("localhost:0"),
    tracing: oneOf({ otlpEndpoint: "http://localhost:4317" }),
    mcp: oneOf({ sessionTtl: "1m" }),
  }),
  frontendPolicies: someOf({
    networkAuthorization: rules,
    accessLog: oneOf({ add: { a: "jwt.sub" } }),
    tracing: oneOf({ host: "localhost:4317" }),
  }),
  binds: list(someOf({ port: oneOf(3000, 3001), tunnelProtocol: oneOf("connect"), listeners: list(listener) })),
  gateways: fc.dictionary(
    fc.constantFrom("default", "b"),
    someOf({ port: oneOf(3002), listeners: list(listener), policies }),
    { maxKeys: 2, noNullPrototype: true },
  ),
  routes: list(route),
  policies: list(someOf({ name: oneOf("p"), target: oneOf({ route: "r" }, { gateway: "default" }), policy: policies })),
  backends: list(someOf({ name: oneOf("n"), host: oneOf("localhost:1"), policies })),
  mcp: someOf({ port: oneOf(3003), targets: oneOf([{ name: "a", stdio: { cmd: "x" } }]), policies }),
  llm: someOf({
    port: oneOf(4000),
    models: list(someOf({ name: oneOf("m"), provider: oneOf("openAI"), guardrails: value, auth: oneOf({ key: "k" }) })),
    policies,
  }),
  ui: someOf({ policies }),
});
const litellm = someOf({
  model_list: list(
    someOf({
      model_name: oneOf("m", "n"),
      litellm_params: someOf({
        model: oneOf("openai/gpt", "azure/x", "own/x"),
        api_key: oneOf("os.environ/E"),
        api_base: oneOf("http://localhost:1"),
        rpm: oneOf(1, 60),
        tpm: oneOf(100),
        timeout: oneOf(5),
        weight: oneOf(1),
        max_budget: oneOf(1),
      }),
      model_info: someOf({ input_cost_per_token: oneOf(0.1), access_groups: oneOf(["a"]) }),
    }),
  ),
  litellm_settings: someOf({
    drop_params: oneOf(true, false),
    request_timeout: oneOf(5),
    fallbacks: oneOf([{ m: ["n"] }]),
    callbacks: oneOf(["hide_secrets"]),
    max_budget: oneOf(1),
  }),
  router_settings: someOf({ allowed_fails: oneOf(1), cooldown_time: oneOf(5), model_group_alias: oneOf({ x: "m" }) }),
  general_settings: someOf({
    master_key: oneOf("k-1234567890"),
    custom_auth: oneOf("x"),
    allowed_ips: oneOf(["1.1.1.1"]),
  }),
  mcp_servers: fc.dictionary(
    fc.constantFrom("a", "b c"),
    someOf({
      url: oneOf("https://x.example/mcp"),
      command: oneOf("x"),
      allowed_tools: oneOf(["t"]),
      access_groups: oneOf(["g"]),
      auth_type: oneOf("bearer_token"),
      auth_value: oneOf("v"),
    }),
    { maxKeys: 2, noNullPrototype: true },
  ),
});
const server = someOf({
  command: oneOf("npx"),
  args: oneOf(["-y", "x"]),
  env: oneOf({ A: "b" }),
  url: oneOf("https://x.example/mcp"),
  headers: oneOf({ "x-key": "v" }),
  disabled: oneOf(true, false),
  includeTools: oneOf(["a"]),
  disabledTools: oneOf(["b"]),
  options: someOf({
    authTokens: oneOf(["t-1234567890"]),
    toolFilter: oneOf({ mode: "allow", list: ["a"] }, { mode: "other" }),
  }),
});
const mcpServers = someOf({
  mcpServers: fc.dictionary(fc.constantFrom("a", "b_c", "ü"), server, { maxKeys: 3, noNullPrototype: true }),
  mcpProxy: someOf({ addr: oneOf(":9090"), options: someOf({ authTokens: oneOf(["d-1234567890"]) }) }),
});
const supergateway = fc.array(
  fc.constantFrom(
    "--stdio",
    '"npx -y x"',
    "--port",
    "8000",
    "--sse",
    "https://x.example/sse",
    "--cors",
    "--header",
    "a: b",
    "--logLevel",
    "debug",
    "--oauth2Bearer",
    "t",
  ),
  { maxLength: 8 },
);

const run = <Value>(arbitrary: fc.Arbitrary<Value>, body: (value: Value) => void): void =>
  fc.assert(fc.property(arbitrary, body), { seed: SEED, numRuns: RUNS });

test("agentgateway: the result is valid", () =>
  run(agentgateway, (source) => void imported(() => importAgentgateway(source))));
test("LiteLLM: the result is valid", () => run(litellm, (source) => void imported(() => importLitellm(source))));
test("mcpServers: the result is valid", () =>
  run(mcpServers, (source) => void imported(() => importMcpServers(source))));
test("supergateway: the result is valid", () =>
  run(supergateway, (words) => void imported(() => importSupergateway(`supergateway ${words.join(" ")}`))));

/** The policy in this gateway, for each protecting policy of agentgateway. */
const KEPT_AS: Readonly<Record<string, string>> = { localRateLimit: "rateLimit", remoteRateLimit: "rateLimit" };

function isClosed(owner: Values): boolean {
  const { rules: written } = asObject(asObject(owner.policies).authorization);
  return asList(written).some((rule) => isObject(rule) && rule.deny === "true");
}

for (const [name, policy] of Object.entries(PROTECTING))
  test(`agentgateway: ${name} of a route is kept, or the route is closed`, () =>
    run(fc.oneof(policy, value), (written) => {
      if (asList(written).length === 0) return;
      const source = {
        binds: [
          {
            port: 3000,
            listeners: [
              { routes: [{ name: "r", policies: { [name]: written }, backends: [{ host: "localhost:1" }] }] },
            ],
          },
        ],
      };
      const conversion = imported(() => importAgentgateway(source));
      const [kept] = asList(conversion?.config.routes).map(asObject);
      if (kept === undefined) return;
      const found = asObject(kept.policies)[KEPT_AS[name] ?? name];
      assert.ok(found !== undefined || isClosed(kept), yamlText(conversion?.config));
    }));

/** Every place of a protection that its requests or connections pass, with the scopes that must have it. */
const PLACES: Readonly<Record<string, (policies: Values) => Values>> = {
  "a listener": (policies) => bind({ policies, routes: [http] }),
  "one of two listeners": (policies) => bind({ policies, routes: [http] }, { hostname: "b.example", routes: [http] }),
  "a TCP listener": (policies) => bind({ protocol: "TCP", policies, tcpRoutes: [tcp] }),
  "a gateway for TCP": (policies) => ({
    gateways: { default: { port: 3000, policies, listeners: [{ name: "l", protocol: "TCP" }] } },
    tcpRoutes: [tcp],
  }),
  "a backend": (policies) => bind({ routes: [{ name: "r", backends: [{ host: "localhost:1", policies }] }] }),
  "a provider": (policies) => bind({ routes: [{ name: "r", backends: [{ ai: { ...openAi, policies } }] }] }),
  "a provider of a group": (policies) =>
    bind({ routes: [{ name: "r", backends: [{ ai: { groups: [{ providers: [{ ...openAi, policies }] }] } }] }] }),
  "an entry for a gateway": (policy) => ({
    ...bind({ protocol: "TCP", tcpRoutes: [tcp] }),
    policies: [{ target: { gateway: "default" }, policy }],
  }),
  "an entry for a target that does not exist": (policy) => ({
    ...bind({ routes: [http] }),
    policies: [{ target: { route: "other" }, policy }],
  }),
};
const openAi = { name: "a", provider: { openAI: {} } };
const http = { name: "r", backends: [{ host: "localhost:1" }] };
const tcp = { name: "t", backends: [{ host: "localhost:1" }] };
const bind = (...listeners: Values[]): Values => ({ binds: [{ port: 3000, listeners }] });
const GUARD = { promptGuard: { request: [{ regex: { action: "reject", rules: [{ builtin: "ssn" }] } }] } };
const KINDS: Readonly<Record<string, unknown>> = {
  authorization: { rules: ['source.address == "10.0.0.1"'] },
  apiKey: { keys: [{ key: "k-1234567890" }] },
  localRateLimit: [{ maxTokens: 10, tokensPerFill: 10, fillInterval: "1s" }],
  ai: GUARD,
};

for (const [place, sourceOf] of Object.entries(PLACES))
  for (const [kind, policy] of Object.entries(KINDS))
    test(`agentgateway: ${kind} of ${place} is kept, or nothing is served without it`, () => {
      const conversion = imported(() => importAgentgateway(sourceOf({ [kind]: policy })));
      const { gateways, routes, tcpRoutes } = asObject(conversion?.config);
      const shown = yamlText(conversion?.config);
      const isKept = (scopes: readonly unknown[]): boolean =>
        scopes.some((scope) => isClosed(asObject(scope)) || protectionIn(asObject(scope).policies) !== undefined);
      for (const route of asList(routes).map(asObject)) {
        if (place === "one of two listeners" && asList(route.hostnames).includes("b.example")) continue;
        const served = asObject(asObject(gateways)[String(route.gateways ?? "default")]);
        assert.ok(isKept([route, ...asList(route.backends), served]), shown);
      }
      assert.deepEqual(asList(tcpRoutes), [], shown);
    });

const ROOTS = [undefined, "ca.pem", "other.pem"];

test("agentgateway: connections of TLS listeners need the client certificates of their listener", () => {
  for (const first of ROOTS)
    for (const second of ROOTS) {
      const listenerOf = (name: string, root: string | undefined) => ({
        name,
        protocol: "TLS",
        hostname: `${name}.example`,
        tls: { cert: "c.pem", key: "k.pem", ...(root === undefined ? {} : { root }) },
      });
      const listeners = [listenerOf("a", first), listenerOf("b", second)];
      const named = listeners.map(({ name }) => ({ name, gateways: [`default/${name}`], backends: tcp.backends }));
      for (const source of [
        bind(...listeners.map((one) => ({ ...one, tcpRoutes: [tcp] }))),
        { gateways: { default: { port: 3000, listeners } }, tcpRoutes: named },
      ]) {
        const { config, leftOut } = importAgentgateway(source);
        const clientAuth = asObject(asObject(asObject(asObject(config.gateways).default).tls).clientAuth);
        if (first === second) assert.deepEqual([clientAuth.ca, asList(config.tcpRoutes).length], [first, 2]);
        else {
          assert.deepEqual([config.gateways, config.tcpRoutes], [undefined, undefined]);
          assert.match(leftOut.join("\n"), /client certificates \(`root`\) differ/);
        }
      }
    }
});

test("mcp-proxy: a server with tokens needs one of them, or its route is closed", () =>
  run(fc.oneof(oneOf(["t-1234567890"]), fc.array(scalar, { minLength: 1, maxLength: 2 })), (authTokens) => {
    const source = { mcpProxy: { options: { authTokens } }, mcpServers: { a: { command: "x" } } };
    const conversion = imported(() => importMcpServers(source));
    const [kept] = asList(conversion?.config.routes).map(asObject);
    assert.ok(kept !== undefined);
    const { apiKey } = asObject(kept.policies);
    assert.ok(asList(asObject(apiKey).keys).length > 0 || isClosed(kept), yamlText(conversion?.config));
  }));

test("tool filters are kept, or the scope is closed", () =>
  run(fc.oneof(oneOf(["a"], []), value), (includeTools) => {
    if (includeTools === null || includeTools === undefined) return;
    const conversion = imported(() => importMcpServers({ mcpServers: { a: { command: "x", includeTools } } }));
    const mcp = asObject(conversion?.config.mcp);
    const [target] = asList(mcp.targets).map(asObject);
    assert.ok(asObject(target?.tools).allow !== undefined || isClosed(mcp), yamlText(conversion?.config));
  }));
