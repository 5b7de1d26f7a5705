/**
 * Guards by moderation services, each against a stand-in server of its API: credentials, paths, masks and rejections.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { type TestContext, test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Received {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Responds to each call with the next answer, and with the last one after that. */
async function service(t: TestContext, ...answers: object[]): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const answer = answers[Math.min(received.length, answers.length - 1)];
      received.push({ url: request.url ?? "", headers: request.headers, body });
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    });
  });
  return { url: `http://${host}`, received };
}

async function chat(t: TestContext, promptGuard: object): Promise<{ status: number; text: string; asked: string[] }> {
  const asked: string[] = [];
  const provider = await backendFor(t, (request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      asked.push(body);
      const choices = [{ index: 0, message: { role: "assistant", content: "fine" }, finish_reason: "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices }));
    });
  });
  const route = {
    backends: [
      {
        ai: {
          name: "m",
          provider: { openAICompatible: { baseUrl: `http://${provider.host}/v1` } },
          auth: { key: "provider-key" },
        },
      },
    ],
    policies: { ai: { promptGuard } },
  };
  const gateway = await gatewayFor(t, JSON.stringify({ gateways: { default: { port: 0 } }, routes: [route] }));
  const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "my mail is a@example.com" }] }),
  });
  return { status: response.status, text: await response.text(), asked };
}

const KEY = { key: "guard-key" };

test("OpenAI moderation: a flagged prompt is rejected and does not reach the provider", async (t) => {
  const { url, received } = await service(t, { results: [{ flagged: true }] });
  const request = [
    { openAIModeration: { auth: KEY, baseUrl: `${url}/v1` }, rejection: { status: 400, body: "blocked" } },
  ];
  const { status, text, asked } = await chat(t, { request });
  assert.equal(status, 400);
  assert.match(text, /"message":"blocked"/);
  assert.equal(asked.length, 0);
  assert.deepEqual([received[0]?.url, received[0]?.headers.authorization], ["/v1/moderations", "Bearer guard-key"]);
});

test("Bedrock: the call is signed, and an anonymized prompt reaches the provider masked", async (t) => {
  const assessments = [{ sensitiveInformationPolicy: { piiEntities: [{ type: "EMAIL", action: "ANONYMIZED" }] } }];
  const masked = { action: "GUARDRAIL_INTERVENED", outputs: [{ text: "my mail is {EMAIL}" }], assessments };
  const { url, received } = await service(t, masked);
  const aws = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret" };
  const bedrockGuardrails = {
    guardrailIdentifier: "g1",
    guardrailVersion: "2",
    region: "us-west-2",
    auth: { aws },
    baseUrl: url,
  };
  const { status, asked } = await chat(t, { request: [{ bedrockGuardrails }] });
  assert.equal(status, 200);
  assert.match(asked[0] ?? "", /my mail is \{EMAIL\}/);
  assert.ok(!asked[0]?.includes("a@example.com"));
  assert.equal(received[0]?.url, "/guardrail/g1/version/2/apply");
  assert.match(
    received[0]?.headers.authorization ?? "",
    /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/us-west-2\/bedrock\//,
  );
});

test("Model Armor: a response that matches a filter is rejected", async (t) => {
  const { url, received } = await service(t, {
    sanitizationResult: { filterMatchState: "MATCH_FOUND", invocationResult: "SUCCESS" },
  });
  const googleModelArmor = { templateId: "t", projectId: "p", auth: KEY, baseUrl: url };
  const { status, text } = await chat(t, { response: [{ googleModelArmor }] });
  assert.equal(status, 403);
  assert.ok(!text.includes("fine"), text);
  assert.equal(received[0]?.url, "/v1/projects/p/locations/us-central1/templates/t:sanitizeModelResponse");
  assert.deepEqual(JSON.parse(received[0]?.body ?? ""), { modelResponseData: { text: "fine" } });
});

test("Azure Content Safety: harmless prompts pass, with the key of the resource", async (t) => {
  const { url, received } = await service(t, { categoriesAnalysis: [{ category: "Hate", severity: 0 }] });
  const azureContentSafety = { endpoint: url, analyzeText: {}, auth: KEY };
  const { status } = await chat(t, { request: [{ azureContentSafety }] });
  assert.equal(status, 200);
  assert.equal(received[0]?.headers["ocp-apim-subscription-key"], "guard-key");
  assert.match(received[0]?.url ?? "", /^\/contentsafety\/text:analyze\?api-version=/);
});

test("a service that cannot be reached rejects the prompt", async (t) => {
  const request = [{ openAIModeration: { auth: KEY, baseUrl: "http://127.0.0.1:1/v1" } }];
  const { status, asked } = await chat(t, { request });
  assert.deepEqual([status, asked.length], [503, 0]);
});
