import assert from "node:assert/strict";
import { test } from "node:test";
import { EarlyUpstream } from "./early-upstream.ts";
import type { Definition } from "./known-definitions.ts";
import type { OpenOutcome, Upstream } from "./upstream.ts";

const DEFINITION: Definition = {
  initialized: JSON.stringify({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: "s", version: "1" },
  }),
  lists: { "tools/list": '{"tools":[]}' },
};

/** An upstream whose server has not started, and whose stored definition arrives with `arrive`. */
function opening() {
  let held = 0;
  let arrive = (_: Definition | undefined): void => undefined;
  const arrived = new Promise<Definition | undefined>((resolve) => {
    arrive = resolve;
  });
  const hold = () => {
    held += 1;
    return () => {
      held -= 1;
    };
  };
  const inner = { target: { messages: { hold } }, open: () => undefined, close: () => Promise.resolve() };
  const upstream = new EarlyUpstream(
    { read: () => arrived, save: () => undefined },
    {} as never,
    () => inner as unknown as Upstream,
  );
  const outcomes: OpenOutcome[] = [];
  upstream.open((outcome) => void outcomes.push(outcome));
  return { upstream, arrive, arrived, outcomes, held: () => held };
}

test("a stored definition opens the session, and its memory is released with it", async () => {
  const { upstream, arrive, arrived, outcomes, held } = opening();
  arrive(DEFINITION);
  await arrived;
  assert.deepEqual([outcomes.map(({ ok }) => ok), held()], [[true], 1]);
  await upstream.close();
  assert.equal(held(), 0);
});

test("a definition that arrives after the session was closed is ignored", async () => {
  const { upstream, arrive, arrived, outcomes, held } = opening();
  await upstream.close();
  arrive(DEFINITION);
  await arrived;
  await Promise.resolve();
  assert.deepEqual([outcomes, held()], [[], 0]);
});
