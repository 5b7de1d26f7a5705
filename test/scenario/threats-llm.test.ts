/**
 * Names of models that are made to be parts of a URL: where a provider has the model in its path, no name leads
 * to another path, adds a query, or breaks the gateway.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let upstream: TestUpstream;
let gateway: TestGateway;

/** Provider → how its paths begin, and what may stand behind the model. */
const providers: [name: string, config: string, path: RegExp][] = [
  ["gemini", "gemini: {}", /^\/v1beta\/models\/([^?#]+):generateContent$/],
  [
    "vertex",
    "vertex: { projectId: p, region: us-east1 }",
    /^\/v1\/projects\/p\/locations\/us-east1\/publishers\/google\/models\/([^?#/]+):generateContent$/,
  ],
  ["bedrock", "bedrock: { region: us-east-1 }", /^\/model\/([^?#/]+)\/converse$/],
  [
    "azure",
    'azure: { resourceName: r, apiVersion: "2024-10-21" }',
    /^\/openai\/deployments\/([^?#/]+)\/chat\/completions\?api-version=2024-10-21$/,
  ],
];

before(async () => {
  upstream = await startUpstream();
  const auth: Record<string, string> = { bedrock: "", vertex: "auth: { key: k }," };
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
${providers
  .map(
    ([name, config]) =>
      `  - { name: ${name}, matches: [{ path: { pathPrefix: /${name} } }], backends: [{ ai: { provider: { ${config} }, ${auth[name] ?? "auth: { key: k },"} hostOverride: "${upstream.host}" } }] }\n`,
  )
  .join("")}`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

const models = [
  "../admin",
  "..",
  ".",
  "../../v1/files",
  "a/../../b",
  "a/./b",
  "..\\\\admin",
  "a?b=c",
  "a#b",
  "a:countTokens?x=",
  "x\\r\\nY: 1",
  "%2e%2e/admin",
  "a%2fb",
  "//evil.test/x",
  "\\ud800",
  "\\u0000",
  "a b",
];
for (const [provider, , path] of providers) {
  test(`no model's name changes the path that ${provider} is asked at [V8]`, async () => {
    for (const model of models) {
      const calls = upstream.requests.length;
      const response = await fetch(`${gateway.url()}/${provider}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: `{"model":"${model}","messages":[{"role":"user","content":"Hi"}]}`,
      });
      await response.text();
      assert.ok(response.status < 500, `${model}: ${response.status}`);
      for (const { url } of upstream.requests.slice(calls)) {
        const inPath = path.exec(url)?.[1];
        assert.ok(inPath !== undefined, `${model}: ${url}`);
        const segments = inPath.split("/").map((segment) => decodeURIComponent(segment));
        assert.ok(
          !segments.some((segment) => segment === "." || segment === ".." || segment === ""),
          `${model}: ${url}`,
        );
      }
    }
  });
}
