/**
 * `gwctl access`, `POST /debug/access` and `expectAccess`: which routes, tools and models each client may use, compared
 * with what real requests get.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { keyDigest } from "../../src/identity/passwords/api-keys.ts";
import type { AccessReview } from "../../src/pipeline/dry-run/access-review.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { gwctl } from "../support/gwctl.ts";
import { ISSUER, KEYS_FILE, kept, token } from "../support/identity/known-issuer.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

/** Pairs of client and tool. `ACCESS_ROUTES=200` checks 14,400 pairs. */
const ROUTES = Number(process.env.ACCESS_ROUTES ?? 20);
const TOOLS = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];

/** Clients with their credential. The names are those of the review. */
const CLAIMS: readonly Record<string, unknown>[] = [
  { sub: "ada", roles: ["admin"], level: 3 },
  { sub: "ben", roles: ["user"], level: 1 },
  { sub: "cid", roles: [], team: "ops" },
  { sub: "dan" },
];
const KEYS = [
  { key: "gw-test-key-one-000", name: "one", team: "ops", level: 1 },
  { key: "gw-test-key-two-000", name: "two", team: "research", level: 5 },
  { key: "gw-test-key-three-0", name: "three" },
];
/** The SHA of `secret`. */
const HTPASSWD = "eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

const AUTHORIZATION = [
  `"has(jwt.sub)"`,
  `'"admin" in jwt.roles'`,
  `'apiKey.team == "ops"'`,
  `'!has(mcp.tool) || mcp.tool.name != "t3"'`,
  `{ deny: 'has(mcp.tool) && mcp.tool.name == "t1"' }`,
  `{ deny: 'has(jwt.sub) && jwt.sub == "ben"' }`,
  `{ allow: 'has(apiKey.level) && apiKey.level > 2' }`,
  `{ allow: 'has(jwt.level) && jwt.level > 2' }`,
  `{ allow: 'has(mcp.tool) && mcp.tool.name == "t5"' }`,
  `{ allow: 'basicAuth.username == "eve"' }`,
];
const ITEMS = [
  `'mcp.tool.name in ["t0", "t1"]'`,
  `'mcp.tool.name.endsWith("2")'`,
  `'apiKey.team == "research"'`,
  `'"admin" in jwt.roles'`,
  `{ deny: 'mcp.tool.name == "t4"' }`,
  `{ deny: 'jwt.sub == "cid"' }`,
  `{ require: 'mcp.target == "files"' }`,
  `{ allow: 'true' }`,
];

/** A small generator of numbers, so that a failure names its seed. */
function seeded(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function generatedPolicies(pick: (below: number) => number): string {
  const some = (list: readonly string[], max: number): string[] =>
    Array.from({ length: pick(max + 1) }, () => list[pick(list.length)] as string);
  const mode = ["strict", "strict", "optional"][pick(3)];
  const policies: string[] = [];
  const keys = KEYS.map(({ key, ...metadata }) => ({
    keyHash: `sha256:${keyDigest(key).toString("hex")}`,
    metadata,
  }));
  if (pick(2) === 0)
    policies.push(
      `apiKey: { mode: ${mode}, location: { header: { name: x-api-key } }, keys: ${JSON.stringify(keys)} }`,
    );
  if (pick(2) === 0)
    policies.push(`jwtAuth: { mode: ${mode}, issuer: "${ISSUER}", audiences: [gateway], jwks: { file: ./jwks.json } }`);
  if (pick(4) === 0) policies.push(`basicAuth: { mode: ${mode}, htpasswd: "${HTPASSWD}" }`);
  const [rules, items] = [some(AUTHORIZATION, 2), some(ITEMS, 3)];
  if (rules.length > 0) policies.push(`authorization: { rules: [${rules.join(", ")}] }`);
  if (items.length > 0) policies.push(`mcpAuthorization: { rules: [${items.join(", ")}] }`);
  return `{ ${policies.join(", ")} }`;
}

interface Client {
  readonly name: string;
  readonly headers: Record<string, string>;
}

const CLIENTS: readonly Client[] = [
  { name: "anonymous", headers: {} },
  ...KEYS.map(({ name, key }) => ({ name, headers: { "x-api-key": key } })),
  { name: "eve", headers: { authorization: `Basic ${Buffer.from("eve:secret").toString("base64")}` } },
  ...CLAIMS.map((claims) => ({
    name: claims.sub as string,
    headers: { authorization: `Bearer ${token(claims)}` },
  })),
];

async function reviewOf(adminUrl: string, question: object): Promise<AccessReview> {
  const response = await fetch(`${adminUrl}/debug/access`, { method: "POST", body: JSON.stringify(question) });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return (JSON.parse(text) as { review: AccessReview }).review;
}

test(`the review of ${ROUTES} generated routes is what real calls get`, async (t) => {
  const seed = Number(process.env.ACCESS_SEED ?? 7);
  const pick = seeded(seed);
  const server = kept(t, await startToolsServer(TOOLS.map((name) => ({ name, inputSchema: { type: "object" } }))));
  const policies = Array.from({ length: ROUTES }, () => generatedPolicies(pick));
  const routes = policies.map(
    (own, i) => `  - name: r${i}
    matches: [{ path: { exact: /r${i} } }]
    backends: [{ mcp: { targets: [{ name: files, mcp: { url: "${server.url}" } }] } }]
    policies: ${own}
`,
  );
  const gateway = await gatewayFor(t, `gateways: { default: { port: 0 } }\nroutes:\n${routes.join("")}`, {
    files: KEYS_FILE,
  });
  const principals = CLAIMS.map((claims) => ({
    name: claims.sub,
    claims: { iss: ISSUER, aud: "gateway", ...claims },
  }));
  const review = await reviewOf(gateway.adminUrl, { principals });
  let pairs = 0;
  for (const [i, item] of review.items.entries()) {
    if (item.kind !== "tool") continue;
    const tool = item.name.slice("files/".length);
    const url = `${gateway.url()}/${item.route}`;
    await Promise.all(
      CLIENTS.map(async ({ name, headers }) => {
        const p = review.principals.findIndex((one) => one.name === name);
        const reason = review.reasons[review.results[i]?.[p] ?? -1];
        pairs += 1;
        const { status, message } = await modernPost(url, "tools/call", { name: tool, arguments: {} }, { headers });
        const isAllowed = status === 200 && message?.result !== undefined;
        assert.equal(
          reason?.allowed,
          isAllowed,
          `seed ${seed}: ${name} at ${item.route} ${tool}: ${reason?.text}, but ${status} ${JSON.stringify(message)}\n${policies[Number(item.route.slice(1))]}`,
        );
      }),
    );
  }
  assert.equal(pairs, ROUTES * TOOLS.length * CLIENTS.length);
  t.diagnostic(`${pairs} pairs of client and tool compared`);
});

const CONFIG = (host: string): string => `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: api
    matches: [{ path: { pathPrefix: /api } }]
    backends: [{ host: "${host}" }]
    policies:
      apiKey:
        keys:
          - { key: gw-test-key-one-000, metadata: { name: one, team: research } }
          - { key: gw-test-key-two-000, metadata: { name: two, team: ops }, expires: "2020-01-01" }
        stored: true
      authorization:
        rules: ['apiKey.team == "research"']
  - name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    backends:
      - ai:
          models:
            - { name: small, provider: openAI, params: { model: gpt-5-mini, apiKey: sk-0000000000000000 } }
            - { name: large, provider: openAI, params: { model: gpt-5, apiKey: sk-0000000000000000 } }
    policies:
      apiKey:
        keys: [{ key: gw-test-key-one-000, metadata: { name: one, team: research }, models: [small] }]
  - name: open
    matches: [{ path: { pathPrefix: /open } }]
    backends: [{ host: "${host}" }]
  - name: wildcard
    matches: [{ path: { pathPrefix: /any } }]
    backends: [{ ai: { models: [{ name: "gpt-*", provider: openAI, params: { apiKey: sk-0000000000000000 } }] } }]
    policies: { apiKey: { keys: [{ key: gw-test-key-wide-00, metadata: { name: wide } }] } }
`;

test("keys of the configuration and of the store, models, expiry, and the position of each rule", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, CONFIG(backend.host));
  const made = await fetch(`${gateway.adminUrl}/keys`, {
    method: "POST",
    body: JSON.stringify({ make: { name: "stored", metadata: { team: "research" } } }),
  });
  assert.equal(made.status, 200, await made.clone().text());
  const review = await reviewOf(gateway.adminUrl, {});
  const rows = review.items.flatMap((item, i) =>
    review.principals.map(({ name }, p) => {
      const reason = review.reasons[review.results[i]?.[p] ?? -1];
      return `${item.kind}:${item.name} ${name} ${reason?.allowed === true ? "yes" : reason?.code}`;
    }),
  );
  assert.deepEqual(rows.filter((row) => !/wide|wildcard/.test(row)).sort(), [
    "model:large anonymous authentication_failed",
    "model:large one model_not_allowed",
    "model:large stored authentication_failed",
    "model:large two authentication_failed",
    "model:small anonymous authentication_failed",
    "model:small one yes",
    "model:small stored authentication_failed",
    "model:small two authentication_failed",
    "route:api anonymous authentication_failed",
    "route:api one yes",
    "route:api stored yes",
    "route:api two authentication_failed",
    "route:open anonymous yes",
    "route:open one yes",
    "route:open stored yes",
    "route:open two yes",
  ]);
  assert.equal(backend.received.length, 0);
  const { port } = new URL(gateway.adminUrl);
  const who = await gwctl(["-p", port, "access", "--who-can", "route:api", "--denied"]);
  assert.equal(who.code, 0, who.stderr);
  assert.match(who.stdout, /^one +route:api +api +yes +admitted by authorization \(\S+:12:7\)/m);
  assert.match(who.stdout, /^two +route:api +api +no +apiKey \(\S+:7:7\): authentication failed/m);
  const what = await gwctl(["-p", port, "access", "--what-can", "team:research"]);
  assert.deepEqual(
    what.stdout
      .split("\n")
      .slice(1, -1)
      .map((line) => line.split(/ +/).slice(0, 2).join(" ")),
    ["one route:api", "stored route:api", "one model:small", "one route:open", "stored route:open"],
  );
  const models = await gwctl(["-p", port, "access", "--who-can", "model:gpt-5-nano", "model:other"]);
  assert.match(models.stdout, /^wide +model:gpt-5-nano +wildcard +yes/m);
  assert.doesNotMatch(models.stdout, /model:other/);
  const csv = await gwctl(["-p", port, "access", "-o", "csv"]);
  assert.equal(csv.stdout.split("\n").length, 1 + review.items.length * review.principals.length + 1);
  for (const bad of [
    ["--who-can", "tool:echo"],
    ["-o", "xml"],
    ["--principals", "/nowhere.yaml"],
  ]) {
    const { code, stderr } = await gwctl(["-p", port, "access", ...bad]);
    assert.ok(code !== 0 && stderr.startsWith("gwctl: "), `${bad.join(" ")}: ${stderr}`);
  }
});

const TESTED = `gateways: { default: { port: 3000 } }
routes:
  - name: tools
    matches: [{ path: { exact: /mcp } }]
    backends: [{ mcp: { targets: [{ name: files, mcp: { url: "http://127.0.0.1:9/mcp" } }] } }]
    policies:
      jwtAuth: { issuer: "https://id.example.com", audiences: [gateway], jwks: { url: "https://id.example.com/keys" } }
      mcpAuthorization:
        rules: ['"ops" in jwt.groups', 'mcp.tool.name == "read_file"']
tests:
  - name: only operators delete files
    principals:
      - { name: ada, claims: { sub: ada, groups: [ops] } }
      - { name: ben, claims: { sub: ben, groups: [] } }
    expectAccess:
      tool:files/delete_file: [ada]
      tool:files/read_file: [ada, ben]
`;

test("expectAccess passes, and fails with the client and the rule when a change opens a tool", async (t) => {
  const run = (config: string) => startGatewayProcess(t, ["--test", "-f", "-"], { stdin: config }).exited;
  const good = await run(TESTED);
  assert.equal(good.code, 0, good.stdout + good.stderr);
  assert.equal(good.stdout, "ok    only operators delete files\n1 of 1 tests passed\n");
  const opened = await run(TESTED.replace(`'mcp.tool.name == "read_file"'`, `'mcp.tool.name.endsWith("_file")'`));
  assert.equal(opened.code, 1);
  assert.match(
    opened.stdout,
    /^FAIL {2}only operators delete files\n {6}<stdin>:16:\d+: .*: ben may use tool:files\/delete_file: admitted by mcpAuthorization \(<stdin>:9:\d+\): mcp\.tool\.name\.endsWith\("_file"\)\n/,
  );
  const unknown = await run(TESTED.replace("tool:files/delete_file: [ada]", "tool:other/delete_file: [zoe]"));
  assert.match(unknown.stdout, /tool:other\/delete_file does not exist/);
  const misspelled = await run(TESTED.replace("tool:files/delete_file", "tools:files/delete_file"));
  assert.equal(misspelled.code, 1);
  assert.match(misspelled.stderr, /expected `route:name`, `tool:server\/name`, or `model:name`/);
});

test("a change that opens a route is named, and --exit-code fails", async (t: TestContext) => {
  const backend = await backendFor(t);
  const config = CONFIG(backend.host);
  const gateway = await gatewayFor(t, config, {
    files: {
      "new.yaml": config
        .replace(`'apiKey.team == "research"'`, `'has(apiKey.name)'`)
        .replace(', expires: "2020-01-01"', ""),
    },
  });
  const { port } = new URL(gateway.adminUrl);
  const file = `${gateway.folder}/new.yaml`;
  const diff = await gwctl(["-p", port, "access", "--diff", file, "--exit-code"]);
  assert.equal(diff.code, 1);
  assert.equal(diff.stdout, "1 principal gains route:api (route api): two\n");
  const same = await gwctl(["-p", port, "access", "--diff", file.replace("new", "config"), "--exit-code"]);
  assert.deepEqual([same.code, same.stdout], [0, "no access changes\n"]);
});
