/**
 * Guards, prompt rules and model rules judge the bodies of all methods: a table of methods, endpoints and rules. Some
 * providers run a call whatever its method is, so what a POST must not send, no other method may send.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

const SECRET = "secret-123";
const FORBIDDEN = "forbidden-model";
/** A body that breaks all rules below. */
const breaking = { model: FORBIDDEN, max_tokens: 9_999, n: 77 };

const METHODS = ["POST", "PUT", "PATCH", "LOCK", "PROPFIND", "GET", "OPTIONS", "DELETE"];
const messages = [{ role: "user", content: SECRET }];
const ENDPOINTS: readonly [path: string, body: object][] = [
  ["/v1/chat/completions", { ...breaking, messages }],
  ["/v1/messages", { ...breaking, messages }],
  ["/v1/responses", { ...breaking, input: SECRET }],
  ["/v1/embeddings", { ...breaking, input: SECRET }],
  ["/v1/completions", { ...breaking, prompt: SECRET }],
  ["/v1/images/generations", { ...breaking, prompt: SECRET }],
  ["/v1/moderations", { ...breaking, input: SECRET }],
  ["/v1/threads/t/messages", { ...breaking, role: "user", content: SECRET }],
  ["/v1/batches", { ...breaking, input: SECRET }],
  ["/v1/other", { ...breaking, messages }],
];

let provider: TestBackend;
let webhook: TestBackend;
let gateway: TestGateway;
let sent: { method: string | undefined; text: string }[] = [];

const target = (fields = "") =>
  `ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${provider.host}" ${fields} }`;
const guard = (fields: string) => `ai: { promptGuard: { request: [${fields}] } }`;
const pattern = 'rules: [{ pattern: "(?i)secret-\\\\d+" }]';

interface Rule {
  readonly policies: () => string;
  readonly backend?: () => string;
  /** What the provider must not receive. */
  readonly withheld: RegExp;
  /** The rule applies to these endpoints only. */
  readonly endpoints?: RegExp;
}

const RULES: Readonly<Record<string, Rule>> = {
  reject: { policies: () => guard(`{ regex: { action: reject, ${pattern} } }`), withheld: /secret-123/ },
  mask: { policies: () => guard(`{ regex: { action: mask, ${pattern} } }`), withheld: /secret-123/ },
  webhook: { policies: () => guard(`{ webhook: { url: "http://${webhook.host}/check" } }`), withheld: /secret-123/ },
  overrides: {
    policies: () => "ai: { overrides: { max_tokens: 5 } }",
    withheld: /9999/,
    endpoints: /chat|\/v1\/messages$|responses|embeddings|other/,
  },
  transformations: {
    policies: () => 'ai: { transformations: { n: "1" } }',
    withheld: /77/,
    endpoints: /chat|\/v1\/messages$|responses|embeddings|other/,
  },
  modelRule: {
    policies: () => `authorization: { rules: [{ deny: 'llm.requestModel == "${FORBIDDEN}"' }, { allow: "true" }] }`,
    withheld: /forbidden-model/,
  },
  modelList: {
    policies: () => "",
    backend: () =>
      `ai: { models: [{ name: allowed, provider: openAI, params: { apiKey: k, hostOverride: "${provider.host}" } }] }`,
    withheld: /forbidden-model/,
  },
};

before(async () => {
  provider = await startBackend((req, res) => {
    let text = "";
    req.on("data", (chunk) => {
      text += chunk;
    });
    req.on("end", () => {
      sent.push({ method: req.method, text });
      res
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ choices: [{ message: { content: "ok" }, finish_reason: "stop" }] }));
    });
  });
  webhook = await startBackend((_req, res) => {
    res.writeHead(200, { "content-type": "application/json" }).end('{"action":"reject"}');
  });
  const routes = Object.entries(RULES).map(
    ([name, { policies, backend }]) => `
  - matches: [{ path: { pathPrefix: /${name}/ } }]
    backends: [{ ${backend?.() ?? target()} }]
    policies: { ${policies()} }`,
  );
  gateway = await startGateway(`gateways: { default: { port: 0 } }
routes:${routes.join("")}
  - { matches: [{ path: { pathPrefix: /plain/ } }], backends: [{ ${target()} }] }
`);
});
after(async () => {
  await gateway?.close();
  await provider?.close();
  await webhook?.close();
});

function send(method: string, path: string, body: object): Promise<number> {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
    const outgoing = request(`${gateway.url()}${path}`, { method, headers }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode ?? 0));
    });
    outgoing.on("error", reject);
    outgoing.end(text);
  });
}

for (const [name, { withheld, endpoints }] of Object.entries(RULES))
  test(`no method sends what the rule keeps back: ${name}`, async () => {
    for (const [path, body] of ENDPOINTS) {
      if (endpoints?.test(path) === false) continue;
      for (const method of METHODS) {
        sent = [];
        const status = await send(method, `/${name}${path}`, body);
        const leaked = sent.filter(({ text }) => withheld.test(text));
        assert.deepEqual(leaked, [], `${method} ${path}: ${status}`);
      }
    }
  });

test("without rules, other methods that have a body pass as POST does", async () => {
  for (const [path, body] of ENDPOINTS) {
    const expected = await send("POST", `/plain${path}`, body);
    for (const method of ["PUT", "PATCH", "LOCK"]) {
      sent = [];
      assert.equal(await send(method, `/plain${path}`, body), expected, `${method} ${path}`);
      assert.equal(sent[0]?.method, expected === 200 ? method : undefined);
    }
  }
});
