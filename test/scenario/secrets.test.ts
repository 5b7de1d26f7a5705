/**
 * Spec 5.8: no token, secret or key in any log line, error, metric, dump, trace or snapshot, in whatever encoding.
 * One gateway with a secret in every place that has one, one full run, and a search through all that came out.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gwctl } from "../support/gwctl.ts";
import { gatewayOutput, Outputs, openStream } from "../support/secrets/outputs.ts";
import { formsOf, Planted } from "../support/secrets/planted.ts";
import { type PlantedGateway, startPlantedGateway } from "../support/secrets/set-up.ts";
import { sendTraffic } from "../support/secrets/traffic.ts";

test("the search finds a secret in each encoding, wherever it stands, and nothing in clean text", () => {
  const planted = new Planted();
  const secret = planted.plant("secret");
  const inBase64 = (encoding: BufferEncoding) =>
    ["", "a", "ab", "abc"].map((before) => Buffer.from(`${before}${secret}after`).toString(encoding));
  const dirty = [
    `before ${secret} after`,
    `cut ${secret.slice(0, 16)}…`,
    encodeURIComponent(`"${secret}"`),
    JSON.stringify({ inner: JSON.stringify({ secret }) }),
    Buffer.from(`:${secret}`).toString("hex"),
    Buffer.from(secret).toString("hex").toUpperCase(),
    ...inBase64("base64"),
    ...inBase64("base64url"),
    JSON.stringify({ body: Buffer.from(JSON.stringify({ inner: inBase64("base64")[1] })).toString("base64") }),
    ...[...formsOf(secret)].map(([, needle]) => needle),
  ];
  for (const text of dirty) assert.equal(planted.leaksIn(text)[0]?.secret, "secret", text);
  assert.notEqual(Buffer.from(secret).toString("base64"), Buffer.from(secret).toString("base64url"));
  assert.deepEqual(planted.leaksIn(Buffer.from("nothing of the kind").toString("base64")), []);
});

/** Read after the traffic; `/ui/api` has all of them once more. */
const ADMIN_READS = [
  "/config_dump",
  "/debug/requests?limit=500",
  "/debug/requests?limit=500&before=2100-01-01T00:00:00Z",
  "/debug/usage?by=user,key,model,tool",
  "/debug/usage/status",
  "/debug/limits",
  "/debug/tasks",
  "/memory",
  "/metrics",
];
const UI_READS = ["about", "config-text", "schema", "config_dump", "debug/requests?limit=500", "metrics"];

test("no planted secret comes out of a full run: log, answers, traces, dumps, metrics, UI, gwctl [C5] [N7] [D3] [D14]", {
  // 13 s of CPU time, some 800 requests: a busy machine needs many times that.
  timeout: 600_000,
}, async (t) => {
  const planted = new Planted();
  const outputs = new Outputs();
  const set = await startPlantedGateway(t, planted);
  const { gateway } = set;
  const admin = gateway.adminUrl;
  const expression = encodeURIComponent('request.path.startsWith("/.well-known") || request.path == "/mcp"');
  const streams = {
    "trace of logins": await openStream(`${admin}/debug/trace?count=1000&expression=${expression}`),
    "trace of one request": await openStream(`${admin}/debug/trace`),
    "trace of the rest": await openStream(`${admin}/debug/trace?count=1000`),
    "requests as they end": await openStream(`${admin}/debug/requests?follow=true`),
  };

  await sendTraffic(set, planted, outputs);
  assertSecretsArrived(set);
  await readAdmin(admin, outputs);
  await runCommands(set, outputs);
  await reloadBroken(set, outputs);

  for (const [source, stream] of Object.entries(streams)) {
    outputs.add(source, stream.text());
    stream.close();
  }
  outputs.add("log", gateway.log().join("\n"));
  for (const name of ["history.db", "history.db-wal"])
    outputs.add(name, readFileSync(join(gateway.folder, "history", name), "latin1"));

  for (const source of Object.keys(streams)) assert.match(outputs.of(source), /^data:/m, source);
  for (const text of ["trace of the rest", "trace of logins", "/debug/requests?id="])
    assert.match(outputs.of(text), /<redacted>/, text);
  for (const text of [
    "unexpected error source=request",
    "stream=stderr",
    "configuration rejected",
    "the identity provider rejected",
  ])
    assert.ok(outputs.of("log").includes(text), `nothing was logged of: ${text}`);
  assert.deepEqual(outputs.leaks(planted), []);
});

/** A secret that went nowhere could not have leaked. */
function assertSecretsArrived({ backend, llm, remote, tenant, secrets }: PlantedGateway): void {
  const forms = tenant.tokenBodies.map((body) => Object.fromEntries(new URLSearchParams(body)));
  const arrived = JSON.stringify([backend.received, llm.requests, remote.received, forms]);
  const expected = [
    secrets.backendKey,
    secrets.headerKey,
    secrets.keyFile,
    secrets.openAiKey,
    secrets.geminiKey,
    secrets.awsSession,
    secrets.remoteToken,
    secrets.remoteQuery,
    secrets.setAuthorization,
    secrets.setInternal,
    secrets.setCookie,
    secrets.computed,
    secrets.policyHeader,
    secrets.routeHeader,
    secrets.teamKey,
    secrets.clientSecret,
  ];
  for (const [i, secret] of expected.entries()) assert.ok(arrived.includes(secret), `the secret ${i} did not arrive`);
}

async function readAdmin(admin: string, outputs: Outputs): Promise<void> {
  for (const path of ADMIN_READS) await outputs.addAnswer(path, await ok(`${admin}${path}`));
  for (const path of UI_READS) await outputs.addAnswer(`/ui/api/${path}`, await ok(`${admin}/ui/api/${path}`));
  const { requests } = (await (await ok(`${admin}/debug/requests?limit=500`)).json()) as { requests: { id: string }[] };
  assert.ok(requests.length > 60, `${requests.length} requests`);
  const parts = [
    "request.headers",
    'request.headers["authorization"] + request.headers["cookie"] + request.headers["x-internal-token"]',
    "request.uri + request.pathAndQuery",
    "jwt",
    "apiKey",
    'int(request.headers["x-internal-token"])',
  ];
  for (const { id } of new Map(requests.map((request) => [request.id, request])).values()) {
    await outputs.addAnswer("/debug/requests?id=", await ok(`${admin}/debug/requests?id=${id}`));
    for (const expression of parts) {
      const response = await fetch(`${admin}/debug/cel`, {
        method: "POST",
        body: JSON.stringify({ expression, requestId: id }),
      });
      await outputs.addAnswer("/debug/cel", response);
    }
  }
  await outputs.addAnswer("/ui/api/validate", await validateEdit(admin));
}

/** Everything again under other names, so that the answer says what changes. */
async function validateEdit(admin: string): Promise<Response> {
  const { files } = (await (await ok(`${admin}/ui/api/config-text`)).json()) as {
    files: { file: string; base: string; text: string }[];
  };
  const [file] = files;
  assert.ok(file);
  const body = JSON.stringify({ file: file.file, base: file.base, text: file.text.replaceAll("name: ", "name: new-") });
  return ok(`${admin}/ui/api/validate`, { method: "POST", body });
}

async function ok(url: string, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  assert.equal(response.status, 200, url);
  return response;
}

async function runCommands({ gateway, environment }: PlantedGateway, outputs: Outputs): Promise<void> {
  const port = new URL(gateway.adminUrl).port;
  const file = join(gateway.folder, "config.yaml");
  const running = [["proxy", "config", "all"], ["proxy", "config", "all", "-o", "json"], ["policies"], ["requests"]];
  const explained = gateway.log().flatMap((line) => / id=(r\d+\S*) .* status=(?:4|5)/.exec(line)?.[1] ?? []);
  assert.ok(explained.length > 10);
  const commands = [
    ...[...running, ...explained.filter((_, i) => i % 8 === 0).map((id) => ["explain", id])].map((args) => [
      ...args,
      "-p",
      port,
    ]),
    ["auth", "check", "-f", file],
  ];
  await Promise.all(
    commands.map(async (args) => {
      const source = `gwctl ${args.slice(0, 3).join(" ")}`;
      const { code, stdout, stderr } = await gwctl(args, { environment });
      assert.notEqual(code, 2, stderr);
      outputs.add(source, stdout + stderr);
      assert.ok(stdout.length > 20, `${source} said nothing: ${stderr}`);
    }),
  );
  const validated = await gatewayOutput(["-f", file, "--validate-only"], environment);
  assert.equal(validated.code, 0, validated.text);
  outputs.add("gateway --validate-only", validated.text);
}

/** Configurations with a mistake at a secret; `S` stands for it, and `W` for one that is a word to a parser. None may be quoted in what is said about them. */
const MISTAKES = {
  "a typo beside it": "{ apiKey: { keys: [{ key: S, metdata: {} }] } }",
  "a typo in its name": "{ apiKey: { keys: [{ kee: S }] } }",
  "no space before it": "{ apiKey: { keys: [{ key:S }] } }",
  "an equals sign before it": "{ apiKey: { keys: [{ key=S }] } }",
  "an alias instead of it": "{ apiKey: { keys: [{ key: *S }] } }",
  "a tag instead of it": "{ apiKey: { keys: [{ key: !S }] } }",
  "no bracket after it": "{ backendAuth: { key: S }",
  "a quote that does not end": '{ backendAuth: { key: "S } }',
  "a bad escape": '{ backendAuth: { key: "\\S" } }',
  "a list instead of it": "{ backendAuth: { key: [S] } }",
  "the key given twice": "{ backendAuth: { key: S, key: S } }",
  "digits from the environment in a list": "{ apiKey: { keys: [{ key: [${NUMBER}] }] } }",
  "digits from the environment instead of a list": "{ apiKey: { keys: ${NUMBER} } }",
  "a password without a hash": '{ basicAuth: { htpasswd: "bob:S" } }',
  "an expression that does not parse": '{ transformations: { request: { set: { authorization: "\'Bearer S" } } } }',
  "an expression with an unknown name": '{ transformations: { request: { set: { authorization: "W" } } } }',
  "an expression that calls it": '{ transformations: { request: { set: { x-api-key: "W(1)" } } } }',
  "a header value of two lines": '{ requestHeaderModifier: { set: { authorization: "S\\n" } } }',
  "a variable with a default": "{ apiKey: { keys: [{ key: '${MISSING:-S}', metdata: {} }] } }",
};

async function reloadBroken({ gateway, yaml, environment, secrets }: PlantedGateway, outputs: Outputs): Promise<void> {
  const withSecrets = (policies: string): string =>
    policies.replace(/\bS\b/g, secrets.plainKey).replace(/\bW\b/g, secrets.word);
  for (const [name, policies] of Object.entries(MISTAKES)) {
    const broken = yaml.replace("routes:\n", `routes:\n  - name: broken\n    policies: ${withSecrets(policies)}\n`);
    assert.equal(await gateway.reload(broken), "refused", name);
    const dump = await outputs.addAnswer(`/config_dump after ${name}`, await ok(`${gateway.adminUrl}/config_dump`));
    assert.match(dump, /"refused":\s*\{/, name);
    await outputs.addAnswer(`/ui/api/config-text after ${name}`, await ok(`${gateway.adminUrl}/ui/api/config-text`));
  }
  // All that can stand in one file at once, as the process tells it.
  const mistakes = Object.values(MISTAKES).filter((policies) => /metdata|kee|NUMBER|bob|Bearer|W/.test(policies));
  const file = join(gateway.folder, "broken.yaml");
  writeFileSync(file, `routes:\n${mistakes.map((policies) => `  - policies: ${withSecrets(policies)}\n`).join("")}`);
  const { code, text } = await gatewayOutput(["-f", file, "--validate-only"], environment);
  assert.equal(code, 1);
  assert.match(text, /unknown field/);
  outputs.add("gateway --validate-only of a broken file", text);
}
