/**
 * A target that gives no response head in time is given up for the next one and rests. `backendRequestTimeout` is for each
 * target; where only the whole request has a limit, the targets share it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway } from "../support/gateway.ts";
import { type FaultyProvider, type Script, startFaultyProvider } from "../support/llm/faulty-provider.ts";
import { type AnswerPlan, answerBytes, errorBytes, readText, textOf } from "../support/llm/provider-answers.ts";

const plan: AnswerPlan = {
  family: "openAI",
  stream: false,
  word: "answer",
  bytes: 100_000,
  inputTokens: 5,
  outputTokens: 6,
};
const ANSWER: Script = { bytes: answerBytes(plan) };
const SILENT: Script = { bytes: ANSWER.bytes, stopAt: 0, fault: "hang" };
const HALF_A_HEAD: Script = { bytes: ANSWER.bytes, stopAt: 30, fault: "hang" };
const FAILING: Script = { bytes: errorBytes(503) };

interface Row {
  readonly name: string;
  readonly timeout: string;
  /** Further fields of `ai`. */
  readonly ai?: string;
  readonly scripts: readonly Script[];
  /** Before each advance, which target must have been called; then how long it is waited. */
  readonly waits: readonly (readonly [target: number, ms: number])[];
  readonly status: number;
  /** Of each target, for its rest. */
  readonly failures: readonly number[];
}

const rows: readonly Row[] = [
  {
    name: "backendRequestTimeout is for each target",
    timeout: "backendRequestTimeout: 3s",
    scripts: [SILENT, HALF_A_HEAD, ANSWER],
    waits: [
      [0, 3_000],
      [1, 3_000],
    ],
    status: 200,
    failures: [1, 1, 0],
  },
  {
    name: "targets share a requestTimeout",
    timeout: "requestTimeout: 9s",
    scripts: [SILENT, SILENT, ANSWER],
    waits: [
      [0, 3_000],
      [1, 3_000],
    ],
    status: 200,
    failures: [1, 1, 0],
  },
  {
    name: "targets share a requestTimeout after a lookup in the response cache",
    timeout: "requestTimeout: 9s",
    ai: "cache: { ttl: 1m, scope: shared }, ",
    scripts: [SILENT, SILENT, ANSWER],
    waits: [
      [0, 3_000],
      [1, 3_000],
    ],
    status: 200,
    failures: [1, 1, 0],
  },
  {
    name: "the time of a target that failed at once is the next one's",
    timeout: "requestTimeout: 8s",
    scripts: [FAILING, SILENT, ANSWER],
    waits: [[1, 4_000]],
    status: 200,
    failures: [1, 1, 0],
  },
  {
    name: "the whole request's limit ends the search",
    timeout: "requestTimeout: 4s, backendRequestTimeout: 3s",
    scripts: [SILENT, SILENT, ANSWER],
    waits: [
      [0, 3_000],
      [1, 1_000],
    ],
    status: 504,
    failures: [1, 0, 0],
  },
  {
    name: "without a next target the limit is an error",
    timeout: "backendRequestTimeout: 2s",
    scripts: [SILENT],
    waits: [[0, 2_000]],
    status: 504,
    failures: [0],
  },
];

for (const { name, timeout, ai = "", scripts, waits, status, failures } of rows) {
  test(name, { timeout: 600_000 }, async (t) => {
    const clock = fakeClock();
    const providers: FaultyProvider[] = [];
    for (const script of scripts) providers.push(await startFaultyProvider(() => script));
    const groups = providers.map(
      ({ host }) =>
        `{ providers: [{ provider: { openAI: { model: m } }, auth: { key: k }, hostOverride: "${host}" }] }`,
    );
    const gateway = await startGateway(
      `
gateways: { default: { port: 0 } }
routes:
  - policies: { timeout: { ${timeout} } }
    backends: [{ ai: { ${ai}groups: [${groups.join(", ")}] } }]
`,
      { clock },
    );
    t.after(async () => {
      await gateway.close();
      for (const provider of providers) await provider.close();
    });
    const called = providers.map((provider) => provider.called());
    const asked = fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }),
    });
    for (const [target, ms] of waits) {
      const call = await called[target];
      await clock.advance(ms - 1);
      assert.equal(call?.isClosed, false, "it has its whole time");
      await clock.advance(1);
      await call?.closed;
    }
    const response = await asked;
    assert.equal(response.status, status);
    const text = await response.text();
    if (status === 200) assert.equal(readText(text, "openAI", false), textOf(plan));
    const dump = JSON.stringify(await (await fetch(`${gateway.adminUrl}/config_dump`)).json());
    const shown = [...dump.matchAll(/"failures":(\d+)/g)].map(([, one]) => Number(one));
    assert.deepEqual(shown, failures);
  });
}
