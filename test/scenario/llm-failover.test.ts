/**
 * Failover: one answer, of one provider, whole; the calls that were given up are closed; one charge. For any number of
 * targets, JSON and streams, small and large, in the provider's words and in translation.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type FaultyProvider, type Script, startFaultyProvider } from "../support/llm/faulty-provider.ts";
import {
  type AnswerPlan,
  answerBytes,
  errorBytes,
  type Family,
  readText,
  textOf,
} from "../support/llm/provider-answers.ts";

const WORDS = ["alpha", "bravo", "charlie", "delta"];
let providers: FaultyProvider[];
let gateway: TestGateway;
/** What each provider does now. */
let scripts: Script[] = [];
/** Much longer than anything takes on a busy machine. */
const PATIENCE_MS = 60_000;
let nextId = 0;
/** Later than the rest of any target that failed. */
let laterMs = 0;
const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + laterMs };

const FAMILIES: readonly Family[] = ["openAI", "anthropic"];

before(async () => {
  providers = await Promise.all(
    WORDS.map((_, index) => startFaultyProvider(() => scripts[index] ?? { bytes: errorBytes(500) })),
  );
  const listeners: string[] = [];
  const routes: string[] = [];
  for (const family of FAMILIES) {
    for (let count = 2; count <= WORDS.length; count++) {
      const name = `${family}${count}`;
      const groups = providers
        .slice(0, count)
        .map(
          ({ host }) =>
            `{ providers: [{ provider: { ${family}: { model: m } }, auth: { key: k }, hostOverride: "${host}" }] }`,
        );
      listeners.push(`${name}: { port: 0 }`);
      routes.push(`  - { name: ${name}, gateways: ${name}, backends: [{ ai: { groups: [${groups.join(", ")}] } }] }`);
    }
  }
  gateway = await startGateway(
    `
config: { logging: { format: json } }
gateways: { ${listeners.join(", ")} }
routes:
${routes.join("\n")}
`,
    { clock },
  );
});
after(async () => {
  await gateway?.close();
  for (const provider of providers) await provider.close();
});

function planFor(family: Family, index: number, stream: boolean, bytes: number): AnswerPlan {
  const word = WORDS[index] ?? "";
  return { family, stream, word, bytes, inputTokens: 100 + index, outputTokens: 7 + index };
}

/** All targets but the last fail with `status`. */
function failAllButLast(family: Family, count: number, stream: boolean, bytes: number, status: number): AnswerPlan {
  const plan = planFor(family, count - 1, stream, bytes);
  scripts = Array.from({ length: count }, (_, index) => ({
    bytes: index < count - 1 ? errorBytes(status) : answerBytes(plan),
  }));
  for (const provider of providers) provider.calls.length = 0;
  laterMs += 60_000;
  return plan;
}

function ask(listener: string, client: Family, stream: boolean, signal?: AbortSignal) {
  nextId += 1;
  const id = `failover-${nextId}`;
  const path = client === "openAI" ? "/v1/chat/completions" : "/v1/messages";
  const body = { model: "m", max_tokens: 64, stream, messages: [{ role: "user", content: "Hi" }] };
  const response = fetch(`${gateway.url(listener)}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-request-id": id },
    body: JSON.stringify(body),
    signal: signal ?? AbortSignal.timeout(PATIENCE_MS),
  });
  return { id, response };
}

for (const family of FAMILIES)
  for (const client of FAMILIES)
    for (const stream of [false, true])
      for (const bytes of [20, 30_000, 300_000])
        for (let count = 2; count <= WORDS.length; count++) {
          const name = `${client} client, ${count} ${family} targets, ${stream ? "a stream" : "JSON"} of ${bytes} bytes`;
          test(`${name}: the answer and the charge are those of the one target that answered`, async () => {
            for (const status of [503, 429]) {
              const plan = failAllButLast(family, count, stream, bytes, status);
              const { id, response } = ask(`${family}${count}`, client, stream);
              const text = await (await response).text();
              assert.equal(readText(text, client, stream), textOf(plan));
              assert.deepEqual(
                providers.map(({ calls }) => calls.length),
                WORDS.map((_, index) => (index < count ? 1 : 0)),
              );
              const line = JSON.parse(await gateway.logged(`"id":"${id}"`)) as Record<string, unknown>;
              assert.equal(line["gen_ai.usage.input_tokens"], plan.inputTokens);
              assert.equal(line["gen_ai.usage.output_tokens"], plan.outputTokens);
            }
          });
        }

for (const count of [2, 3]) {
  test(`a client that leaves in the middle of an answer ends the call of the target, ${count} targets`, {
    timeout: PATIENCE_MS,
  }, async () => {
    failAllButLast("openAI", count, true, 300_000, 503);
    const last = count - 1;
    scripts[last] = { ...(scripts[last] as Script), stopAt: 8_000, fault: "hang" };
    const abort = new AbortController();
    const { response } = ask(`openAI${count}`, "openAI", true, abort.signal);
    const reader = (await response).body?.getReader();
    await reader?.read();
    abort.abort();
    await reader?.closed.catch(() => undefined);
    await providers[last]?.calls[0]?.closed;
  });

  test(`a client that leaves before the head ends the call of the target, ${count} targets`, {
    timeout: PATIENCE_MS,
  }, async () => {
    failAllButLast("openAI", count, true, 20, 503);
    const last = count - 1;
    scripts[last] = { ...(scripts[last] as Script), stopAt: 0, fault: "hang" };
    const abort = new AbortController();
    const called = providers[last]?.called();
    const { response } = ask(`openAI${count}`, "openAI", true, abort.signal);
    const call = await called;
    abort.abort();
    await assert.rejects(response);
    await call?.closed;
  });
}
