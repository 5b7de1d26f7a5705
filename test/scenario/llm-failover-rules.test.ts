/**
 * What sends a call on to the next provider (`failoverOn`), for how long the one that failed is paused (`cooldown`,
 * `retry-after`), its own time limits (`timeouts`), and how several entries of one model share the calls.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type FaultyProvider, type Script, startFaultyProvider } from "../support/llm/faulty-provider.ts";
import { type AnswerPlan, answerBytes, errorBytes, readText, textOf } from "../support/llm/provider-answers.ts";

const plan = (word: string, stream = false): AnswerPlan => ({
  family: "openAI",
  stream,
  word,
  bytes: 100,
  inputTokens: 5,
  outputTokens: 6,
});
const says = (word: string): Script => ({ bytes: answerBytes(plan(word)) });
const fails = (status: number, headers: readonly string[] = []): Script => ({ bytes: errorBytes(status, headers) });

const TOO_LONG: Script = { bytes: answerOf(400, { error: { message: "too much", code: "context_length_exceeded" } }) };
const WRONG: Script = { bytes: answerOf(400, { error: { message: "temperature must be at most 2", code: null } }) };
const LONG_ERROR: Script = { bytes: answerOf(400, { error: { message: "x".repeat(200_000), code: null } }) };

function answerOf(status: number, body: object): Buffer {
  const text = JSON.stringify(body);
  return Buffer.from(
    `HTTP/1.1 ${status} Said\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  );
}

interface Lab {
  readonly gateway: TestGateway;
  readonly providers: readonly FaultyProvider[];
  readonly clock: ReturnType<typeof fakeClock>;
  ask(extra?: object, headers?: Record<string, string>): Promise<Response>;
}

/** One group per script, in their order. `settings`: of the backend, `own`: of each provider. */
async function open(
  t: TestContext,
  scripts: readonly (Script | (() => Script))[],
  settings = "",
  own: string | readonly string[] = "auth: { key: k }",
): Promise<Lab> {
  const clock = fakeClock(Date.parse("Sun, 15 Nov 2026 12:00:00 GMT"));
  const providers: FaultyProvider[] = [];
  for (const script of scripts)
    providers.push(await startFaultyProvider(typeof script === "function" ? script : () => script));
  const groups = providers.map(
    ({ host }, i) =>
      `{ providers: [{ name: p${i}, provider: { openAI: { model: m } }, hostOverride: "${host}", ${typeof own === "string" ? own : own[i]} }] }`,
  );
  const gateway = await startGateway(
    `
gateways: { default: { port: 0 } }
routes:
  - backends: [{ ai: { ${settings} groups: [${groups.join(", ")}] } }]
`,
    { clock },
  );
  t.after(async () => {
    await gateway.close();
    for (const provider of providers) await provider.close();
  });
  return { gateway, providers, clock, ask: (extra, headers) => askAt(gateway, extra, headers) };
}

function askAt(gateway: TestGateway, extra: object = {}, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }], ...extra }),
  });
}

const statuses: [name: string, first: Script, settings: string, status: number, isPaused: boolean][] = [
  ["401 goes on", fails(401), "", 200, true],
  ["403 goes on", fails(403), "", 200, true],
  ["404 goes on, without a pause", fails(404), "", 200, false],
  ["408 goes on", fails(408), "", 200, true],
  ["429 goes on", fails(429), "", 200, true],
  ["529 goes on", fails(529), "", 200, true],
  ["a prompt that is too long goes on, without a pause", TOO_LONG, "", 200, false],
  ["another 400 is the client's", WRONG, "", 400, false],
  ["a long 400 is the client's, whole", LONG_ERROR, "", 400, false],
  ["422 is the client's", fails(422), "", 422, false],
  ["422 goes on where it is named", fails(422), "failoverOn: [422],", 200, false],
  ["only what is named goes on", fails(401), "failoverOn: [rateLimit],", 401, true],
  ["a prompt that is too long stays where it is not named", TOO_LONG, "failoverOn: [serverError],", 400, false],
];
for (const [name, first, settings, status, isPaused] of statuses) {
  test(name, async (t) => {
    const { ask, gateway, providers } = await open(t, [first, says("second")], settings);
    const response = await ask();
    assert.equal(response.status, status);
    const text = await response.text();
    if (status === 200) assert.equal(readText(text, "openAI", false), textOf(plan("second")));
    else assert.equal(text, first.bytes.toString().split("\r\n\r\n")[1]);
    assert.equal(providers[1]?.calls.length, status === 200 ? 1 : 0);
    const dump = JSON.stringify(await (await fetch(`${gateway.adminUrl}/config_dump`)).json());
    assert.equal(/"failures":(\d+)/.exec(dump)?.[1] !== "0", isPaused);
  });
}

test("a 401 for the client's own key is the client's", async (t) => {
  const { ask, providers } = await open(t, [fails(401), says("second")], "", "pathPrefix: /v1");
  assert.equal((await ask({}, { authorization: "Bearer mine" })).status, 401);
  assert.equal(providers[1]?.calls.length, 0);
});

test("each failover is a log line and counted by provider and cause", async (t) => {
  const { ask, gateway } = await open(t, [fails(503), TOO_LONG, says("third")]);
  assert.equal((await ask()).status, 200);
  await gateway.logged("trying the next provider target=p0");
  await gateway.logged("trying the next provider target=p1");
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_llm_failovers_total\{gen_ai_provider_name="openai",cause="503"\} 1/);
  assert.match(metrics, /gateway_llm_failovers_total\{gen_ai_provider_name="openai",cause="context_length"\} 1/);
});

const pauses: [name: string, headers: readonly string[], settings: string, pauseMs: number][] = [
  ["a pause is 1 s", [], "", 1_000],
  ["the first pause can be set", [], "cooldown: { initial: 7s },", 7_000],
  ["retry-after in seconds is followed beyond 30 s", ["retry-after: 90"], "", 90_000],
  ["retry-after as a date is followed", ["retry-after: Sun, 15 Nov 2026 12:02:00 GMT"], "", 120_000],
  ["retry-after-ms is followed", ["retry-after-ms: 250"], "", 250],
  ["retry-after is followed up to its maximum", ["retry-after: 9000"], "cooldown: { maxRetryAfter: 20s },", 20_000],
];
for (const [name, headers, settings, pauseMs] of pauses) {
  test(name, async (t) => {
    const { ask, clock, providers } = await open(t, [fails(429, headers), says("second")], settings);
    await ask();
    await clock.advance(pauseMs - 1);
    await ask();
    assert.equal(providers[0]?.calls.length, 1, "it is paused");
    await clock.advance(1);
    await ask();
    assert.equal(providers[0]?.calls.length, 2, "it is asked again");
  });
}

test("failures that are allowed cause no pause", async (t) => {
  const { ask, providers } = await open(t, [fails(503), says("second")], "cooldown: { allowedFailures: 2 },");
  for (let i = 0; i < 5; i++) await ask();
  assert.equal(providers[0]?.calls.length, 3);
});

const head = answerBytes(plan("first", true)).indexOf("\r\n\r\n") + 4;
const SLOW_FIRST_BYTE: Script = { bytes: answerBytes(plan("first", true)), stopAt: head, fault: "hang" };
/** Behind some whole events. */
const LONG = { ...plan("first", true), bytes: 3_000 };
const PAUSES_LATER: Script = { bytes: answerBytes(LONG), stopAt: head + 2_000, fault: "hang" };
const OWN = "auth: { key: k }, timeouts: { firstByte: 2s, idle: 3s }";

test("a head without a first byte goes on to the next provider", async (t) => {
  const { ask, clock, providers } = await open(
    t,
    [SLOW_FIRST_BYTE, { bytes: answerBytes(plan("second", true)) }],
    "",
    OWN,
  );
  const called = providers[0]?.called();
  const asked = ask({ stream: true });
  const call = await called;
  await call?.stopped;
  await clock.advance(1_999);
  assert.equal(call?.isClosed, false);
  await clock.advance(1);
  const response = await asked;
  assert.equal(response.status, 200);
  assert.equal(readText(await response.text(), "openAI", true), textOf(plan("second")));
  await call?.closed;
});

test("without a next provider the missing first byte is a 504 in the client's format", async (t) => {
  const { ask, clock, providers } = await open(t, [SLOW_FIRST_BYTE], "", OWN);
  const called = providers[0]?.called();
  const asked = ask({ stream: true });
  await (await called)?.stopped;
  await clock.advance(2_000);
  assert.equal((await asked).status, 504);
});

test("an answer that pauses too long ends with an error, and its call is closed", async (t) => {
  const { ask, clock, providers } = await open(t, [PAUSES_LATER, says("second")], "", OWN);
  const called = providers[0]?.called();
  const asked = ask({ stream: true });
  const call = await called;
  const response = await asked;
  await call?.stopped;
  const reader = response.body?.getReader();
  await reader?.read();
  await clock.advance(3_000);
  let text = "";
  try {
    for (let part = await reader?.read(); part && !part.done; part = await reader?.read())
      text += Buffer.from(part.value ?? []).toString();
  } catch {
    // The connection is cut behind the error event.
  }
  assert.match(text, /upstream_error/);
  assert.doesNotMatch(text, /\[DONE\]/);
  await call?.closed;
  assert.equal(providers[1]?.calls.length, 0, "the client has a part of the answer already");
});

test("entries of one model share the calls by weight, and stand in for each other", async (t) => {
  let secondWorks = true;
  const providers = [
    await startFaultyProvider(() => says("first")),
    await startFaultyProvider(() => (secondWorks ? says("second") : fails(503))),
    await startFaultyProvider(() => says("third")),
  ];
  const entry = (i: number, extra: string): string =>
    `{ name: m, ${extra} provider: openAI, params: { apiKey: k, hostOverride: "${providers[i]?.host}" } }`;
  const gateway = await startGateway(`
llm:
  port: 0
  models:
    - ${entry(0, "weight: 3,")}
    - ${entry(1, "aliases: [alias],")}
    - { name: other, provider: openAI, params: { apiKey: k, hostOverride: "${providers[2]?.host}" } }
  virtualModels:
    - { name: ranked, routing: { failover: { targets: [{ model: m, weight: 1 }, { model: other, weight: 3 }] } } }
`);
  t.after(async () => {
    await gateway.close();
    for (const provider of providers) await provider.close();
  });
  const counts = async (model: string, calls: number): Promise<number[]> => {
    const before = providers.map((one) => one.calls.length);
    for (let i = 0; i < calls; i++) assert.equal((await askAt(gateway, { model })).status, 200);
    return providers.map((one, i) => one.calls.length - (before[i] ?? 0));
  };
  assert.deepEqual(await counts("m", 8), [6, 2, 0]);
  assert.deepEqual(await counts("alias", 8), [6, 2, 0]);
  // A quarter is for `m`, and of that three quarters for its first entry.
  assert.deepEqual(await counts("ranked", 16), [3, 1, 12]);
  secondWorks = false;
  const [first] = await counts("m", 8);
  assert.equal(first, 8);
  const { data } = (await (await fetch(`${gateway.url()}/v1/models`)).json()) as { data: { id: string }[] };
  assert.deepEqual(
    data.map(({ id }) => id),
    ["ranked", "m", "alias", "other"],
  );
  const listed = async (path: string, headers: Record<string, string> = {}): Promise<unknown> =>
    (await fetch(`${gateway.url()}${path}`, { headers })).json();
  const anthropic = { "anthropic-version": "2023-06-01" };
  const claude = (await listed("/v1/models", anthropic)) as Record<string, unknown> & { data: object[] };
  assert.deepEqual(
    { ...claude, data: undefined },
    { data: undefined, has_more: false, first_id: "ranked", last_id: "other" },
  );
  const m = { type: "model", id: "m", display_name: "m", created_at: "1970-01-01T00:00:00Z" };
  assert.deepEqual([claude.data[1], await listed("/v1/models/m", anthropic)], [m, m]);
  const gemini = (await listed("/v1beta/models")) as {
    models: { name: string; supportedGenerationMethods: string[] }[];
  };
  assert.deepEqual(
    gemini.models.map(({ name }) => name),
    ["models/ranked", "models/m", "models/alias", "models/other"],
  );
  assert.deepEqual(await listed("/v1beta/models/m"), gemini.models[1]);
  assert.deepEqual(await listed("/v1beta/models/unknown"), {
    error: { code: 404, message: 'the model "unknown" does not exist', status: "NOT_FOUND" },
  });
});
