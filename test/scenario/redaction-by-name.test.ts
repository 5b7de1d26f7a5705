/**
 * One redactor for every output: credentials of clients under names that nobody configured, secrets that a configuration
 * carries outside of fields made for them, and the smaller view of a UI viewer.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { DEMO_SERVER } from "../support/identity/protected-gateway.ts";
import { rawClient } from "../support/mcp/client.ts";

const CLIENT_HEADERS =
  "x-auth-token x-access-token x-vault-token private-token x-gitlab-token api-token ocp-apim-subscription-key x-functions-key " +
  "x-litellm-api-key dd-api-key x-shopify-access-token cf-access-jwt-assertion x-goog-iap-jwt-assertion " +
  "x-ms-token-aad-access-token x-jwt-assertion x-hub-signature-256 x-csrf-token x-session-token x-user-password " +
  "x-client-secret x-amz-security-token x-api-key api-key apikey x-apikey x-credential x-amzn-oidc-accesstoken " +
  "proxy-authorization authorization cookie x_backend_key xAuthToken";
const CLIENT_PARAMETERS =
  "token auth sig signature api-key secret jwt session X-Amz-Signature pwd bearer credential authorization subscription-key " +
  "api_key access_token password key code apikey accessToken refresh_token id_token client_secret sessionId X-Amz-Credential " +
  "client_assertion passwd X-Goog-Signature";
const SHOWN_HEADERS =
  "idempotency-key x-session-affinity x-authored-by x-max-tokens x-keyboard surrogate-key x-token-count";
const SHOWN_PARAMETERS = "max_tokens monkey author page keywords token_type";

async function open(t: TestContext, yaml: string, files = {}): Promise<TestGateway> {
  const gateway = await startGateway(yaml, { files });
  t.after(() => gateway.close());
  return gateway;
}

function read(url: string, init?: RequestInit): Promise<string> {
  return fetch(url, init).then((response) => response.text());
}

test("credentials of clients under any usual header or parameter name stay out of records, recordings and traces [N19]", async (t) => {
  const backend = await startBackend();
  t.after(() => backend.close());
  const gateway = await open(
    t,
    `
config: { logging: { level: trace, access: { fields: { all: 'string(request.uri)', h: 'request.headers["x-vault-token"]' } } } }
gateways: { default: { port: 0 } }
routes: [{ name: all, backends: [{ host: "${backend.host}" }] }]
`,
  );
  const secrets: string[] = [];
  const secret = (): string => {
    secrets.push(`mark${secrets.length}X9f${secrets.length}Zq`);
    return secrets.at(-1) as string;
  };
  const plain: string[] = [];
  const word = (): string => {
    plain.push(`plain${plain.length}Y7k`);
    return plain.at(-1) as string;
  };
  const headers: Record<string, string> = { "x-request-id": "named" };
  for (const name of CLIENT_HEADERS.split(" ")) headers[name] = secret();
  for (const name of SHOWN_HEADERS.split(" ")) headers[name] = word();
  const query = [
    ...CLIENT_PARAMETERS.split(" ").map((name) => `${name}=${secret()}`),
    ...SHOWN_PARAMETERS.split(" ").map((name) => `${name}=${word()}`),
  ].join("&");
  const trace = fetch(`${gateway.adminUrl}/debug/trace`);
  const armed = await trace;
  await (await fetch(`${gateway.url()}/x?${query}`, { headers })).text();
  const outputs = {
    trace: await armed.text(),
    record: await read(`${gateway.adminUrl}/debug/requests?id=named`),
    recording: await read(`${gateway.adminUrl}/debug/recording`),
    log: gateway.log().join("\n"),
    "gwctl explain": await gwctl(["explain", "named", "-o", "json", "-p", new URL(gateway.adminUrl).port]).then(
      ({ stdout }) => stdout,
    ),
  };
  for (const [where, text] of Object.entries(outputs))
    assert.deepEqual(
      secrets.filter((one) => text.includes(one)),
      [],
      `${where}: ${secrets.length} secrets`,
    );
  for (const where of ["trace", "record", "recording"] as const)
    assert.deepEqual(
      plain.filter((one) => !outputs[where].includes(one)),
      [],
      where,
    );
  const received = JSON.stringify(backend.received);
  assert.deepEqual(
    secrets.filter((one) => !received.includes(one)),
    [],
    "the backend gets the real values",
  );
});

const MARKS = Object.fromEntries(
  (
    "flag assigned dsn header json option setHeader setPlain constant compared compared2 compared3 webhook webhookUser env " +
    "targetQuery apiKey matched mirrored body"
  )
    .split(" ")
    .map((name, i) => [name, `MARK${i}q${name}7`]),
);

const CONFIGURED = (host: string) => `
config: { logging: { level: trace } }
gateways: { default: { port: 0 } }
ui:
  gateways: default
  policies:
    basicAuth: { htpasswd: "viewer:{SHA}AMr9EmGC6KnnwBuy8N/QBJa+ck8=\\noperator:{SHA}AMr9EmGC6KnnwBuy8N/QBJa+ck8=" }
  operator: 'basicAuth.username == "operator"'
routes:
  - name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    backends:
      - mcp:
          targets:
            - name: child
              stdio:
                cmd: ${JSON.stringify(process.execPath)}
                args: [${JSON.stringify(DEMO_SERVER)}, --api-key, ${MARKS.flag}, --token=${MARKS.assigned}, "postgres://u:${MARKS.dsn}@h/db", --header, "X-Team-Key: ${MARKS.header}", '{"apiKey":"${MARKS.json}"}', "Server=h;Password=${MARKS.option};Timeout=3"]
                env: { PLAIN_NAME: ${MARKS.env} }
            - name: far
              mcp: { url: "http://${host}/far?k=${MARKS.targetQuery}" }
  - name: plain
    matches: [{ path: { pathPrefix: /plain } }]
    backends: [{ host: "${host}" }]
    policies:
      requestHeaderModifier: { set: { x-backend-key: ${MARKS.setHeader}, x-upstream: ${MARKS.setPlain} } }
      transformations: { request: { set: { x-constant: "'${MARKS.constant}'" } } }
      authorization:
        rules:
          - 'request.headers["x-shared"] == "${MARKS.compared}" || request.path == "/plain/open"'
          - '!(request.headers["x-api-key"] in ["${MARKS.compared2}"]) || request.headers["x-api-key"].startsWith("${MARKS.compared3}")'
  - name: keyed
    matches: [{ path: { pathPrefix: /keyed }, headers: [{ name: x-route-key, exact: ${MARKS.matched} }] }]
    backends: [{ host: "${host}" }]
    policies: { apiKey: { mode: strict, keys: [{ key: ${MARKS.apiKey} }] } }
  - name: guarded
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
    policies: { ai: { promptGuard: { request: [{ webhook: { url: "http://127.0.0.1:1/guard?t=${MARKS.webhook}" } }] } } }
`;

test("secrets of a configuration outside of secret fields are in no dump, metric, log, record or page [N20]", async (t) => {
  const backend = await startBackend();
  t.after(() => backend.close());
  const gateway = await open(t, CONFIGURED(backend.host));
  const base = gateway.url();
  const trace = await fetch(`${gateway.adminUrl}/debug/trace?count=3`);
  const traced = trace.text();
  for (const path of ["/plain/a", "/plain/open", `/keyed/${MARKS.apiKey}?x=${MARKS.apiKey}`])
    await read(`${base}${path}`, { headers: { "x-request-id": "one", "x-copy": MARKS.apiKey as string } });
  await read(`${base}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] }),
  });
  await rawClient(`${base}/mcp`).post({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  });
  const as = (user: string) => ({ headers: { authorization: `Basic ${btoa(`${user}:secret1`)}` } });
  const outputs: Record<string, string> = { trace: await traced };
  for (const path of ["config_dump", "debug/requests", "debug/requests?id=one", "metrics", "debug/tasks", "memory"]) {
    outputs[path] = await read(`${gateway.adminUrl}/${path}`);
    for (const user of ["viewer", "operator"]) {
      const response = await fetch(`${base}/ui/api/${path}`, as(user));
      assert.equal(response.status, 200, `${user} ${path}`);
      outputs[`${user} ${path}`] = await response.text();
    }
  }
  outputs.recording = await read(`${gateway.adminUrl}/debug/recording`);
  outputs["config-text"] = await read(`${gateway.adminUrl}/ui/api/config-text`);
  const port = new URL(gateway.adminUrl).port;
  for (const args of [["proxy", "config", "all"], ["policies"], ["requests"], ["explain", "one"]])
    outputs[`gwctl ${args.join(" ")}`] = (await gwctl([...args, "-p", port])).stdout;
  outputs.log = gateway.log().join("\n");
  for (const [where, text] of Object.entries(outputs))
    assert.deepEqual(
      Object.entries(MARKS).flatMap(([name, mark]) => {
        const at = text.indexOf(mark as string);
        return at < 0 ? [] : [`${name}: ${text.slice(Math.max(0, at - 80), at + 30)}`];
      }),
      [],
      where,
    );
  assert.match(outputs.metrics ?? "", /gateway_llm_guard_failures_total\{url="http:\/\/127\.0\.0\.1:1\/guard"\} 1/);
  assert.match(outputs.config_dump ?? "", /"--api-key",\s*"<redacted>",\s*"--token=<redacted>"/);
  assert.match(outputs.config_dump ?? "", /request\.path == \\"\/plain\/open\\"/);
});

test("a viewer of the UI sees no header value, query, claim, process argument, expression or process setting [N21]", async (t) => {
  const backend = await startBackend();
  t.after(() => backend.close());
  const gateway = await open(t, CONFIGURED(backend.host));
  const base = gateway.url();
  await read(`${base}/plain/open?color=blueish`, {
    headers: { "x-request-id": "seen", "user-agent": "agent-seen", "x-note": "note-seen" },
  });
  const as = (user: string) => ({ headers: { authorization: `Basic ${btoa(`${user}:secret1`)}` } });
  const dump = (user: string) => read(`${base}/ui/api/config_dump`, as(user));
  const detail = (user: string) => read(`${base}/ui/api/debug/requests?id=seen`, as(user));
  for (const text of ["agent-seen", "note-seen", "blueish"]) {
    assert.ok((await detail("operator")).includes(text), text);
    assert.ok(!(await detail("viewer")).includes(text), text);
  }
  for (const text of ["--api-key", "/plain/open", "logging"]) {
    assert.ok((await dump("operator")).includes(text), text);
    assert.ok(!(await dump("viewer")).includes(text), text);
  }
  const viewed = JSON.parse(await dump("viewer")) as { routes: { name: string }[]; listeners: object[] };
  assert.deepEqual(viewed.routes.map(({ name }) => name).sort(), ["guarded", "keyed", "plain", "tools", "ui"]);
  assert.match(await detail("viewer"), /"path":\s*"\/plain\/open"/);
});

test("audit: credentials in arguments and their echo are hidden, and a record has an id that the client cannot choose [N22] [N23]", async (t) => {
  const members = [
    "api_key",
    "token",
    "secret",
    "Authorization",
    "privateKey",
    "password",
    "access_token",
    "clientSecret",
  ];
  const folder = mkdtempSync(join(tmpdir(), "gateway-audit-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "audit.log");
  const gateway = await startGateway(`
config: { audit: { file: { path: ${JSON.stringify(path)} }, arguments: whole, results: whole }, logging: { level: info } }
gateways: { default: { port: 0 } }
routes: [{ name: tools, backends: [{ mcp: { targets: [{ name: demo, stdio: { cmd: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(DEMO_SERVER)}] } }] } }] }]
`);
  const client = rawClient(`${gateway.url()}/mcp`);
  const opened = await client.post({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  });
  client.sessionId = opened.headers.get("mcp-session-id") ?? undefined;
  for (const [i, name] of members.entries()) {
    const mark = `audited${i}Zq9`;
    await client.post(
      {
        jsonrpc: "2.0",
        id: i + 2,
        method: "tools/call",
        params: { name: "echo", arguments: { message: `said ${mark}`, [name]: mark, max_tokens: "plainY7k" } },
      },
      { "x-request-id": "chosen-by-client" },
    );
  }
  await gateway.close();
  const text = readFileSync(path, "utf8");
  const records = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.equal(records.length, members.length);
  assert.doesNotMatch(text, /audited\d/);
  assert.match(text, /plainY7k/);
  assert.deepEqual(new Set(records.map(({ id }) => id)), new Set(["chosen-by-client"]));
  const ids = records.map(({ recordId }) => String(recordId));
  assert.equal(new Set(ids).size, records.length);
  for (const id of ids) {
    assert.match(id, /^[0-9a-f]{16}-[0-9a-z]+$/);
    assert.equal(
      gateway.log().filter((line) => line.includes(`recordId=${id}`)).length,
      1,
      "the access log has it too",
    );
  }
});
