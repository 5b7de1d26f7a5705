/**
 * Every client dialect with every family of providers and every feature, through a real gateway: each cell works or is
 * refused by name, and the table in the docs says which. `UPDATE=1 npm test -- test/scenario/llm-pair-matrix` writes it.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type ClientDialect, type ClientName, PNG, type Wish } from "../support/llm/client-dialect.ts";
import { CLIENT_DIALECTS } from "../support/llm/client-requests.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";
import { COUNTS, TEXT } from "../support/llm/upstream-answers.ts";

const PAGE = "docs/reference/llm-pairs.md";
const AWS = "{ aws: { accessKeyId: AKIDEXAMPLE, secretAccessKey: wJalrXUtnFEMI } }";

interface Family {
  readonly name: string;
  readonly key: string;
  readonly provider: string;
  readonly auth: string;
  readonly model: string;
  /** How it is asked to think. */
  readonly thinks: RegExp;
  readonly native: readonly ClientName[];
}

const OPENAI_THINKS = /"reasoning_effort":"low"|"effort":"low"/;
const FAMILIES: readonly Family[] = [
  { name: "OpenAI-compatible", key: "openai", provider: "{ openAI: {} }", auth: "{ key: k }", model: "gpt-x", thinks: OPENAI_THINKS, native: ["chat", "responses"] },
  { name: "Azure", key: "azure", provider: "{ azure: { resourceName: r } }", auth: "{ key: k }", model: "gpt-x", thinks: OPENAI_THINKS, native: ["chat", "responses"] },
  { name: "Anthropic", key: "anthropic", provider: "{ anthropic: {} }", auth: "{ key: k }", model: "claude-sonnet-4-5-x", thinks: /"thinking":\{"type":"enabled"/, native: ["messages"] },
  { name: "Gemini", key: "gemini", provider: "{ gemini: {} }", auth: "{ key: k }", model: "gemini-x", thinks: /"thinkingBudget":1024/, native: ["generateContent"] },
  { name: "Vertex", key: "vertex", provider: "{ vertex: { projectId: p } }", auth: "{ key: k }", model: "gemini-x", thinks: /"thinkingBudget":1024/, native: ["generateContent"] },
  { name: "Bedrock", key: "bedrock", provider: "{ bedrock: { region: eu-west-1 } }", auth: AWS, model: "amazon.nova-2-x", thinks: /"thinking":\{"type":"enabled"|"maxReasoningEffort":"low"/, native: [] },
]; // biome-ignore format: a table

interface Asked {
  readonly status: number;
  readonly headers: Headers;
  readonly reading: ReturnType<ClientDialect["read"]>;
  /** What the provider got. */
  readonly sent: string;
  readonly family: Family;
}

interface Feature {
  readonly name: string;
  readonly wish: Wish;
  /** What the name of the model makes the provider do. */
  readonly mark?: string;
  holds(asked: Asked): void;
}

const WHOLE = TEXT.join("");
const saysText = ({ reading }: Asked): void => assert.equal(reading.text, WHOLE);
const CALL = [{ name: "get_weather", input: { city: "Rome" } }];

const FEATURES: readonly Feature[] = [
  { name: "text", wish: {}, holds: saysText },
  { name: "stream", wish: { stream: true }, holds: saysText },
  { name: "system prompt", wish: { system: "MARKED-SYSTEM" }, holds: ({ sent }) => assert.match(sent, /MARKED-SYSTEM/) },
  {
    name: "tools",
    wish: { tool: true },
    mark: "tool",
    holds: ({ reading, sent }) => {
      assert.match(sent, /get_weather/);
      assert.deepEqual(reading.calls, CALL);
    },
  },
  { name: "streamed tools", wish: { tool: true, stream: true }, mark: "tool", holds: ({ reading }) => assert.deepEqual(reading.calls, CALL) },
  {
    name: "parallel tools",
    wish: { tool: true, history: "results" },
    holds: (asked) => {
      saysText(asked);
      assert.match(asked.sent, /Rome.*Oslo.*RESULT-ONE.*RESULT-TWO/);
    },
  },
  { name: "images", wish: { image: true }, holds: ({ sent }) => assert.ok(sent.includes(PNG)) },
  {
    name: "images in tool results",
    wish: { tool: true, history: "image result" },
    holds: ({ sent }) => {
      assert.ok(sent.includes(PNG));
      assert.match(sent, /RESULT-TWO/);
    },
  },
  { name: "JSON schema", wish: { schema: true }, holds: ({ sent }) => assert.match(sent, /marked_city/) },
  { name: "reasoning", wish: { thinks: true }, holds: ({ sent, family }) => assert.match(sent, family.thinks) },
  { name: "cached tokens", wish: {}, mark: "cached", holds: ({ reading }) => assert.equal(reading.cachedTokens, COUNTS.cached) },
  {
    name: "errors",
    wish: {},
    mark: "fail-429",
    holds: ({ reading, status }) => {
      assert.equal(status, 429);
      assert.match(reading.error ?? "", /canned 429/);
    },
  },
]; // biome-ignore format: a table

let gateway: TestGateway;
let upstream: TestUpstream;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway(`
gateways: { ${FAMILIES.map(({ key }) => `${key}: { port: 0 }`).join(", ")} }
routes:
${FAMILIES.map(({ key, provider, auth }) => `  - { gateways: ${key}, backends: [{ ai: { provider: ${provider}, auth: ${auth}, hostOverride: "${upstream.host}" } }] }`).join("\n")}
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

async function ask(client: ClientDialect, family: Family, feature: Feature): Promise<Asked> {
  const model = feature.mark === undefined ? family.model : `${family.model}-${feature.mark}`;
  const count = upstream.requests.length;
  const response = await fetch(`${gateway.url(family.key)}${client.path(model, feature.wish)}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(client.body(model, feature.wish)),
  });
  const body = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    reading: client.read(body, response.ok && feature.wish.stream === true),
    sent: upstream.requests.length === count ? "" : JSON.stringify(upstream.last().body),
    family,
  };
}

/** What happened to one cell, in a word. Fails if nobody was told. */
async function cellOf(client: ClientDialect, family: Family, feature: Feature): Promise<string> {
  const asked = await ask(client, family, feature);
  const dropped = asked.headers.get("x-gateway-dropped");
  if (asked.status === 400 && asked.sent === "") {
    assert.match(asked.reading.error ?? "", /\S/, "a refusal says why");
    return "refused";
  }
  if (dropped !== null) return `without \`${dropped}\``;
  if (feature.name !== "errors") assert.equal(asked.status, 200, asked.reading.error);
  feature.holds(asked);
  return family.native.includes(client.name) ? "native" : "yes";
}

const table: string[] = [];
for (const client of CLIENT_DIALECTS) {
  table.push(
    "",
    `## ${client.name}`,
    "",
    `| | ${FAMILIES.map(({ name }) => name).join(" | ")} |`,
    `|---|${FAMILIES.map(() => "---|").join("")}`,
  );
  for (const feature of FEATURES) {
    test(`${client.name}: ${feature.name}`, async () => {
      const cells: string[] = [];
      for (const family of FAMILIES) cells.push(await cellOf(client, family, feature));
      rows.set(`${client.name} ${feature.name}`, `| ${feature.name} | ${cells.join(" | ")} |`);
    });
    table.push(`${client.name} ${feature.name}`);
  }
}
const rows = new Map<string, string>();

test("the table in the docs says the same", () => {
  const page = `# LLM clients and providers

Which features work between a client's API and a provider. The tests make this page: each cell is tried through a gateway.

| Cell | |
|---|---|
| native | the request passes as it is |
| yes | the gateway translates it |
| without \`x\` | the provider has no counterpart: \`x\` is left out and named in \`x-gateway-dropped\` ([\`unsupported\`](../llm-request-formats.md)) |
| refused | 400, and the error says why |
${table.map((line) => rows.get(line) ?? line).join("\n")}

## Next

[LLM](../llm.md) · [Configuration](config.md)
`;
  if (process.env.UPDATE === "1") writeFileSync(PAGE, page);
  assert.equal(readFileSync(PAGE, "utf8"), page);
});
