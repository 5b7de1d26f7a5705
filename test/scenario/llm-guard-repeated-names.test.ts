/**
 * Guards read the last of repeated names, and other parsers may read the first. A body with repeated names is therefore
 * forwarded as the guards read it, even if no guard changes it.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const REPEATED = '{"role":"user","content":"hidden","\\u0063ontent":"shown"}';
const UNCHANGED = ' {"model": "m", "messages": [{"role":"user","content":"shown"}], "seed": 12345678901234567890}';

async function setUp(t: TestContext, response: string, rules: (webhook: string) => string) {
  const sent: string[] = [];
  const { host } = await backendFor(t, (request, reply) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      if (request.url !== "/guard") sent.push(text);
      const said = request.url === "/guard" ? '{"action":"pass"}' : response;
      reply.writeHead(200, { "content-type": "application/json" }).end(said);
    });
  });
  const gateway = await gatewayFor(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [{ ai: { provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } } }]
    policies: { ai: { promptGuard: ${rules(`[{ webhook: { url: "http://${host}/guard", timeout: 60s } }]`)} } }
`,
  );
  const ask = async (body: string): Promise<string> => {
    const answered = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    assert.equal(answered.status, 200);
    return answered.text();
  };
  return { sent, ask };
}

const REGEX = "[{ regex: { action: mask, rules: [{ pattern: secret }] } }]";
const KINDS: Readonly<Record<string, (webhook: string) => string>> = { regex: () => REGEX, webhook: (hook) => hook };

for (const [kind, guard] of Object.entries(KINDS)) {
  test(`a request that a ${kind} guard passes is forwarded unchanged unless it repeats names`, async (t) => {
    const { sent, ask } = await setUp(t, "{}", (webhook) => `{ request: ${guard(webhook)} }`);
    await ask(UNCHANGED);
    assert.equal(sent[0], UNCHANGED);
    await ask(`{"model":"m","messages":[${REPEATED}]}`);
    assert.equal(sent[1], '{"model":"m","messages":[{"role":"user","content":"shown"}]}');
  });

  test(`a response that a ${kind} guard passes is forwarded unchanged unless it repeats names`, async (t) => {
    const rules = (webhook: string): string => `{ response: ${guard(webhook)} }`;
    const plain = `{"choices": [{"message":{"role":"assistant","content":"shown"}}], "created": 1.0}`;
    assert.equal(await (await setUp(t, plain, rules)).ask(UNCHANGED), plain);
    const { ask } = await setUp(t, `{"choices":[{"message":${REPEATED}}]}`, rules);
    assert.equal(await ask(UNCHANGED), '{"choices":[{"message":{"role":"user","content":"shown"}}]}');
  });
}
