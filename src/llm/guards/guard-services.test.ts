import assert from "node:assert/strict";
import { test } from "node:test";
import { type Answer, createFakeFetch } from "../../../test/support/identity/fake-fetch.ts";
import {
  azureContentSafety,
  bedrockGuardrails,
  createServiceGuard,
  type GuardInput,
  type GuardService,
  googleModelArmor,
  openAiModeration,
} from "./guard-services.ts";

const REJECTION = { status: 403, message: "no" };

type Respond = (request: { readonly body?: Buffer }) => Answer;

interface Options {
  readonly failureMode?: "closed" | "open";
  readonly direction?: "request" | "response";
  readonly mcp?: GuardInput["mcp"];
}

function setUp(
  service: GuardService,
  answers: Readonly<Record<string, Answer | Answer[] | Respond>>,
  options: Options = {},
) {
  const { failureMode = "closed", direction = "request", mcp } = options;
  const fake = createFakeFetch();
  for (const [url, answer] of Object.entries(answers)) {
    const list = Array.isArray(answer) ? [...answer] : undefined;
    fake.answers.set(url, typeof answer === "function" ? answer : () => list?.shift() ?? (answer as Answer));
  }
  const failures: string[] = [];
  const guard = createServiceGuard(
    service,
    {
      timeoutMs: 1000,
      failureMode,
      rejection: REJECTION,
      authorize: ({ headers }) => {
        headers.set("authorization", "Bearer own");
      },
    },
    { fetch: fake.fetch, failed: (reason) => failures.push(reason) },
  );
  return {
    failures,
    requests: fake.requests,
    sent: (index = 0): unknown => JSON.parse(String(fake.requests[index]?.body)),
    check: (...texts: string[]) => guard.check({ direction, model: "m", texts, mcp }),
  };
}

const rejects = { name: "GuardRejection", status: 403, message: "no" };
const unavailable = { name: "GuardRejection", status: 503 };

const MODERATIONS = "https://api.openai.com/v1/moderations";
const openAi = openAiModeration({ baseUrl: "https://api.openai.com/v1", model: "omni" });

test("OpenAI moderation passes texts that are not flagged and rejects if one is", async () => {
  const results = (...flags: boolean[]) => ({
    [MODERATIONS]: { body: { results: flags.map((flagged) => ({ flagged })) } },
  });
  const clean = setUp(openAi, results(false, false, false));
  assert.deepEqual(await clean.check("a", "b"), ["a", "b"]);
  assert.deepEqual(clean.sent(), { model: "omni", input: ["a", "b", "a\nb"] });
  assert.equal(clean.requests[0]?.headers?.authorization, "Bearer own");
  await assert.rejects(setUp(openAi, results(false, true, false)).check("a", "b"), rejects);
  await assert.rejects(setUp(openAi, results(false, false, true)).check("split over", "two texts"), rejects);
});

const APPLY = "https://bedrock/guardrail/arn%3Aaws%3Ag/version/DRAFT/apply";
const bedrock = bedrockGuardrails({
  baseUrl: "https://bedrock",
  guardrailIdentifier: "arn:aws:g",
  guardrailVersion: "DRAFT",
});
const intervened = (action: string, ...outputs: string[]): Answer => ({
  body: {
    action: "GUARDRAIL_INTERVENED",
    outputs: outputs.map((text) => ({ text })),
    assessments: [{ sensitiveInformationPolicy: { piiEntities: [{ match: "x", type: "EMAIL", action }] } }],
  },
});
const none: Answer = { body: { action: "NONE", outputs: [], assessments: [] } };

test("a Bedrock guardrail that does not intervene needs one call", async () => {
  const { check, sent, requests } = setUp(bedrock, { [APPLY]: none }, { direction: "response" });
  assert.deepEqual(await check("a", "", "b"), ["a", "", "b"]);
  assert.deepEqual(sent(), { source: "OUTPUT", content: [{ text: { text: "a" } }, { text: { text: "b" } }] });
  assert.equal(requests.length, 1);
});

test("a Bedrock guardrail that anonymizes masks the text that it concerns", async () => {
  const answers = [intervened("ANONYMIZED", "masked"), none, intervened("ANONYMIZED", "mail {EMAIL}"), none];
  const { check, sent } = setUp(bedrock, { [APPLY]: answers });
  assert.deepEqual(await check("a", "mail x"), ["a", "mail {EMAIL}"]);
  assert.deepEqual(sent(2), { source: "INPUT", content: [{ text: { text: "mail x" } }] });
});

test("a Bedrock guardrail that anonymizes one of many texts needs few calls", async () => {
  const texts = Array.from({ length: 500 }, (_, i) => (i === 321 ? "mail x" : `row ${i}`));
  const { check, requests } = setUp(bedrock, {
    [APPLY]: ({ body }) => (String(body).includes("mail x") ? intervened("ANONYMIZED", "mail {EMAIL}") : none),
  });
  const checked = await check(...texts);
  assert.deepEqual(checked, texts.with(321, "mail {EMAIL}"));
  assert.ok(requests.length <= 21, `${requests.length} calls`);
});

test("a Bedrock guardrail that finds something only in the texts together rejects", async () => {
  const together = intervened("ANONYMIZED", "masked");
  await assert.rejects(setUp(bedrock, { [APPLY]: [together, none, none, together] }).check("555", "0199"), rejects);
  const partly = [together, none, intervened("ANONYMIZED", "mail {EMAIL}"), together];
  await assert.rejects(setUp(bedrock, { [APPLY]: partly }).check("a", "mail x"), rejects);
  await assert.rejects(setUp(bedrock, { [APPLY]: [intervened("BLOCKED", "no"), none, none] }).check("a", "b"), rejects);
});

test("a Bedrock guardrail that blocks, or whose action is unknown, rejects", async () => {
  for (const action of ["BLOCKED", "SOMETHING_NEW"])
    await assert.rejects(setUp(bedrock, { [APPLY]: intervened(action, "blocked") }).check("a"), rejects);
  await assert.rejects(setUp(bedrock, { [APPLY]: intervened("ANONYMIZED") }).check("a"), rejects);
});

const TEMPLATE = "projects/p/locations/l/templates/t";
const armor = googleModelArmor({ baseUrl: "https://armor", template: TEMPLATE });
const sanitized = (filterMatchState: string, invocationResult = "SUCCESS"): Answer => ({
  body: { sanitizationResult: { filterMatchState, invocationResult, filterResults: {} } },
});

test("Model Armor checks prompts and responses with its two methods", async () => {
  const prompt = `https://armor/v1/${TEMPLATE}:sanitizeUserPrompt`;
  const clean = setUp(armor, { [prompt]: sanitized("NO_MATCH_FOUND") });
  assert.deepEqual(await clean.check("a", "b"), ["a", "b"]);
  assert.deepEqual(clean.sent(), { userPromptData: { text: "a\nb" } });
  await assert.rejects(setUp(armor, { [prompt]: sanitized("MATCH_FOUND") }).check("a"), rejects);
  const response = `https://armor/v1/${TEMPLATE}:sanitizeModelResponse`;
  const found = setUp(armor, { [response]: sanitized("MATCH_FOUND") }, { direction: "response" });
  await assert.rejects(found.check("a"), rejects);
  assert.deepEqual(found.sent(), { modelResponseData: { text: "a" } });
  await assert.rejects(setUp(armor, { [prompt]: sanitized("NO_MATCH_FOUND", "PARTIAL") }).check("a"), unavailable);
});

const azureUrl = (name: string): string => `https://azure/contentsafety/text:${name}?api-version=v`;
const azure = azureContentSafety({
  endpoint: "https://azure",
  apiVersion: "v",
  severityThreshold: 4,
  blocklistNames: ["own"],
  detectsJailbreak: true,
});
const severity = (value: number, ...blocklistsMatch: object[]): Answer => ({
  body: { categoriesAnalysis: [{ category: "Hate", severity: value }], blocklistsMatch },
});
const shield = (attackDetected: boolean): Answer => ({
  body: { userPromptAnalysis: { attackDetected }, documentsAnalysis: [] },
});

test("Azure Content Safety rejects from the threshold, on blocklists, and attacks in requests", async () => {
  const answers = (analysis: Answer, attack = false) => ({
    [azureUrl("analyze")]: analysis,
    [azureUrl("shieldPrompt")]: shield(attack),
  });
  const clean = setUp(azure, answers(severity(2)));
  assert.deepEqual(await clean.check("a"), ["a"]);
  assert.deepEqual(
    [clean.sent(0), clean.sent(1)],
    [
      { text: "a", blocklistNames: ["own"] },
      { userPrompt: "a", documents: [] },
    ],
  );
  await assert.rejects(setUp(azure, answers(severity(4))).check("a"), rejects);
  await assert.rejects(setUp(azure, answers(severity(0, { blocklistName: "own" }))).check("a"), rejects);
  await assert.rejects(setUp(azure, answers(severity(0), true)).check("a"), rejects);
  const response = setUp(azure, answers(severity(0), true), { direction: "response" });
  assert.deepEqual(await response.check("a"), ["a"]);
});

test("Azure checks the output of MCP servers as a document", async () => {
  const analysis = (attackDetected: boolean) => ({
    [azureUrl("analyze")]: severity(0),
    [azureUrl("shieldPrompt")]: { body: { documentsAnalysis: [{ attackDetected }] } },
  });
  const mcp = { target: "files", method: "tools/call", tool: "read" };
  const clean = setUp(azure, analysis(false), { direction: "response", mcp });
  assert.deepEqual(await clean.check("a"), ["a"]);
  assert.deepEqual(clean.sent(1), { userPrompt: "", documents: ["a"] });
  await assert.rejects(setUp(azure, analysis(true), { direction: "response", mcp }).check("a"), rejects);
  const prompt = { [azureUrl("analyze")]: severity(0), [azureUrl("shieldPrompt")]: shield(false) };
  await assert.rejects(setUp(azure, prompt, { direction: "response", mcp }).check("a"), unavailable);
});

test("Azure gets long texts in overlapping pieces", async () => {
  const answers = { [azureUrl("analyze")]: severity(0), [azureUrl("shieldPrompt")]: shield(false) };
  const { check, requests } = setUp(azure, answers);
  const text = `${"a".repeat(9_999)}bad${"c".repeat(9_999)}`;
  assert.deepEqual(await check(text), [text]);
  const pieces = requests.filter(({ url }) => url.includes("analyze")).map(({ body }) => JSON.parse(String(body)).text);
  assert.ok(pieces.every((piece: string) => piece.length <= 10_000));
  assert.ok(pieces.some((piece: string) => piece.includes("bad")));
});

test("a service that fails or gives no verdict rejects with 503, or passes with failureMode open", async () => {
  for (const response of [
    { status: 500, body: "" },
    { status: 429, body: "" },
    { body: "<html>" },
    { body: {} },
    { body: { results: [] } },
    { body: { results: [{ flagged: "no" }] } },
  ] as Answer[]) {
    const closed = setUp(openAi, { [MODERATIONS]: response });
    await assert.rejects(closed.check("a"), unavailable);
    assert.equal(closed.failures.length, 1);
    const open = setUp(openAi, { [MODERATIONS]: response }, { failureMode: "open" });
    assert.deepEqual(await open.check("a"), ["a"]);
  }
});

test("a text that the service rejects, or that needs too many calls, never passes", async () => {
  for (const status of [400, 413, 422])
    await assert.rejects(
      setUp(openAi, { [MODERATIONS]: { status, body: "" } }, { failureMode: "open" }).check("a"),
      unavailable,
    );
  const clean = { [azureUrl("analyze")]: severity(0), [azureUrl("shieldPrompt")]: shield(false) };
  const long = setUp(azure, clean, { failureMode: "open" });
  await assert.rejects(long.check("x".repeat(1_000_000)), { name: "GuardRejection", status: 413 });
  assert.equal(long.requests.length, 64);
  const bedrockMany = setUp(bedrock, { [APPLY]: intervened("ANONYMIZED", "m") }, { failureMode: "open" });
  await assert.rejects(bedrockMany.check(...Array.from({ length: 200 }, () => "x")), { status: 413 });
});

test("a text that is split over messages is analyzed as one by Azure", async () => {
  const clean = { [azureUrl("analyze")]: severity(0), [azureUrl("shieldPrompt")]: shield(false) };
  const { check, sent } = setUp(azure, clean);
  await check("one", "two");
  assert.deepEqual(sent(0), { text: "one\ntwo", blocklistNames: ["own"] });
});

test("empty texts need no call", async () => {
  const { check, requests } = setUp(openAi, {});
  assert.deepEqual(await check("", ""), ["", ""]);
  assert.equal(requests.length, 0);
});
