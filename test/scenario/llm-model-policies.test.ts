/**
 * Policies of single models: rules, limits, budgets, prompts, guards and headers apply to the calls of their model, by
 * whatever name it is asked for, and to no others. What is tried here to get around them does not.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let gateway: TestGateway;
let upstream: TestUpstream;

before(async () => {
  upstream = await startUpstream();
  const params = (model: string): string => `params: { model: ${model}, apiKey: k, hostOverride: "${upstream.host}" }`;
  gateway = await startGateway(`
llm:
  port: 0
  policies:
    ai: { modelAliases: { old-secret: secret } }
  models:
    - { name: open, provider: openAI, ${params("gpt-open")} }
    - name: secret
      aliases: [hidden, "internal/*"]
      provider: openAI
      ${params("gpt-secret")}
      policies:
        authorization: { rules: ['request.headers["x-team"] == "research"'] }
        responseHeaderModifier: { set: { x-model: secret } }
    - name: scarce
      provider: openAI
      ${params("gpt-scarce")}
      policies:
        rateLimit: { local: [{ requests: 2, unit: Hours }] }
        requestHeaderModifier: { set: { x-scarce: "yes" } }
        ai:
          overrides: { temperature: 0 }
          prompts: { prepend: [{ role: system, content: Be brief. }] }
          promptGuard: { request: [{ regex: { action: reject, rules: [{ pattern: forbidden }] } }] }
    - { name: counted, provider: openAI, ${params("gpt-counted")}, policies: { rateLimit: { local: [{ tokens: 30, unit: Hours }] } } }
    - { name: paid, provider: openAI, ${params("gpt-paid")}, policies: { budgets: { limits: [{ name: paid, tokens: 20, per: day }] } } }
    - { name: broken, provider: openAI, ${params("fail-503")} }
  virtualModels:
    - { name: either, routing: { failover: { targets: [{ model: secret, priority: 0 }, { model: open, priority: 1 }] } } }
    - { name: only-secret, routing: { weighted: { targets: [{ model: secret }] } } }
    - { name: spare, routing: { failover: { targets: [{ model: broken, priority: 0 }, { model: scarce, priority: 1 }] } } }
    - name: few
      routing: { weighted: { targets: [{ model: open }] } }
      policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

const RESEARCH = { "x-team": "research" };

async function send(path: string, body: string, headers: Record<string, string> = {}) {
  const response = await fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

const ask = (model: string, headers: Record<string, string> = {}, extra: object = {}) =>
  send(
    "/v1/chat/completions",
    JSON.stringify({ model, messages: [{ role: "user", content: "Hi" }], ...extra }),
    headers,
  );

test("rules of a model hold for its calls alone, and their refusal has the client's shape", async () => {
  assert.equal((await ask("open")).status, 200);
  const denied = await ask("secret");
  assert.equal(denied.status, 403);
  assert.ok(JSON.parse(denied.text).error.message);
  const allowed = await ask("secret", RESEARCH);
  assert.deepEqual([allowed.status, allowed.headers.get("x-model")], [200, "secret"]);
  assert.equal((await ask("open")).headers.get("x-model"), null);
});

test("no other name, spelling or path leads around the rules of a model", async () => {
  const before = upstream.requests.length;
  for (const model of ["hidden", "internal/x", "old-secret", "only-secret"])
    assert.equal((await ask(model)).status, 403, model);
  const messages = '"messages":[{"role":"user","content":"Hi"}]';
  const bodies = [
    `{"model":"\\u0073ecret",${messages}}`,
    `{"model":"open","model":"secret",${messages}}`,
    `{"model":"open","\\u006dodel":"secret",${messages}}`,
    `{"model":"open","Model":"secret",${messages}}`,
    `{"model":["secret"],${messages}}`,
    `{"model":"secret ",${messages}}`,
    `{"model":"SECRET",${messages}}`,
  ];
  for (const body of bodies) assert.ok((await send("/v1/chat/completions", body)).status >= 400, body);
  const paths: [string, string][] = [
    ["/v1/messages", `{"model":"secret","max_tokens":9,${messages}}`],
    ["/v1/messages/count_tokens", `{"model":"secret",${messages}}`],
    ["/v1/responses", '{"model":"secret","input":"Hi"}'],
    ["/v1/embeddings", '{"model":"secret","input":"Hi"}'],
    ["/v1beta/models/secret:generateContent", '{"contents":[{"parts":[{"text":"Hi"}]}]}'],
    ["/v1/images/generations", '{"model":"secret","prompt":"Hi"}'],
    ["/anything", `{"model":"secret",${messages}}`],
  ];
  for (const [path, body] of paths) assert.equal((await send(path, body)).status, 403, path);
  assert.equal(upstream.requests.length, before, "nobody was asked");
});

test("a virtual model leaves out what the client may not use", async () => {
  await ask("either");
  assert.equal(upstream.last().body.model, "gpt-open");
  await ask("either", RESEARCH);
  assert.equal(upstream.last().body.model, "gpt-secret");
});

test("lists of models show what the client may use", async () => {
  const list = async (headers: Record<string, string>, path = ""): Promise<string> =>
    (await fetch(`${gateway.url()}/v1/models${path}`, { headers })).text();
  const seen = await list({});
  assert.ok(seen.includes('"open"') && seen.includes('"either"'));
  assert.ok(!seen.includes('"secret"') && !seen.includes('"only-secret"') && !seen.includes('"hidden"'));
  assert.ok((await list(RESEARCH)).includes('"secret"'));
  assert.match(await list({}, "/secret"), /model_not_found/);
  assert.match(await list(RESEARCH, "/secret"), /"id":"secret"/);
});

test("prompts, guards, headers and limits of a model", async () => {
  const guarded = await ask("scarce", {}, { messages: [{ role: "user", content: "forbidden" }] });
  assert.equal(guarded.status, 403);
  assert.equal((await ask("scarce")).status, 200);
  const { body, headers } = upstream.last();
  assert.deepEqual((body.messages as object[])[0], { role: "system", content: "Be brief." });
  assert.deepEqual([body.temperature, headers["x-scarce"]], [0, "yes"]);
  const limited = await ask("scarce");
  assert.equal(limited.status, 429);
  await ask("open", {}, { messages: [{ role: "user", content: "forbidden" }] });
  assert.deepEqual(upstream.last().body.messages, [{ role: "user", content: "forbidden" }]);
  assert.equal(upstream.last().headers["x-scarce"], undefined);
});

test("a call does not go on to a model whose policies it has not passed", async () => {
  assert.equal((await ask("spare")).status, 503);
});

test("token limits and budgets of a model", async () => {
  for (const model of ["counted", "paid"]) {
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await ask(model)).status);
    assert.equal(statuses[0], 200, model);
    assert.equal(statuses.at(-1), 429, model);
  }
  assert.equal((await ask("open")).status, 200);
});

test("a virtual model has policies of its own", async () => {
  assert.equal((await ask("few")).status, 200);
  assert.equal((await ask("few")).status, 429);
  assert.equal((await ask("open")).status, 200);
});

test("what-if and explain name the model", async () => {
  const request = {
    url: "/v1/chat/completions",
    method: "POST",
    body: JSON.stringify({ model: "hidden", messages: [] }),
  };
  const report = (await (
    await fetch(`${gateway.adminUrl}/debug/what-if`, { method: "POST", body: JSON.stringify({ request }) })
  ).json()) as { status: number; policies: object[] };
  assert.equal(report.status, 403);
  const step = report.policies.at(-1) as { of: string; policy: string; verdict: string };
  assert.deepEqual([step.of, step.policy, step.verdict], ["model secret", "authorization", "refused"]);
  const { headers } = await ask("secret");
  const id = headers.get("x-request-id");
  const told = await (await fetch(`${gateway.adminUrl}/debug/requests?id=${id}`)).text();
  assert.match(told, /authorization[^.]*model .?secret/);
});

const written = (policies: string, more = ""): string => `
llm:
  port: 0
  models:
    - { name: a, provider: demo, policies: ${policies} }
    ${more}
`;

for (const [policies, reason] of [
  ["{ ai: { modelAliases: { a: b } } }", /policies\.ai\.modelAliases/],
  ["{ ai: { overrides: { model: b } } }", /policies\.ai\.overrides\.model/],
  ['{ transformations: { request: { body: "request.path" } } }', /transformations\.request\.body/],
  ['{ authorization: { rules: ["jwt.sub =="] } }', /models\[0\]\.policies\.authorization/],
  ["{ jwtAuth: {} }", /models\[0\]\.policies\.jwtAuth/],
  ["{ nonsense: {} }", /models\[0\]\.policies\.nonsense/],
] as const)
  test(`the configuration with ${policies} is rejected`, async () => {
    await assert.rejects(startGateway(written(policies)), (error: Error) =>
      reason.test(JSON.stringify(error) + String(error)),
    );
  });

test("of several entries of one model, one has the policies, for all", async () => {
  const limit = "{ rateLimit: { local: [{ requests: 1, unit: Hours }] } }";
  const twice = `- { name: a, provider: demo, policies: ${limit} }`;
  await assert.rejects(startGateway(written(limit, twice)), /several entries of the model/);
  const shared = await startGateway(written(limit, "- { name: a, provider: demo }"));
  try {
    const body = JSON.stringify({ model: "a", messages: [] });
    const statuses = [];
    for (let i = 0; i < 3; i++)
      statuses.push((await fetch(`${shared.url()}/v1/chat/completions`, { method: "POST", body })).status);
    assert.deepEqual(statuses, [200, 429, 429]);
  } finally {
    await shared.close();
  }
});
