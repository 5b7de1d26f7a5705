import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { delay } from "./policy.ts";

function compiled(duration: string) {
  const clock = fakeClock();
  return { clock, hooks: delay.compile(delay.schema.parse({ duration }), { ...testEnv, clock }) };
}

const waits: [duration: string, headers: Record<string, string>, ms: number][] = [
  ["500ms", {}, 500],
  ["1m30s", {}, 60_000],
  ['request.headers["x-slow"] == "1" ? 2000 : 0', { "x-slow": "1" }, 2000],
  ['duration("1500ms")', {}, 1500],
  ['"2s"', {}, 2000],
];
for (const [duration, headers, ms] of waits)
  test(`${duration} waits ${ms} ms`, async () => {
    const { clock, hooks } = compiled(duration);
    const waiting = hooks.shape?.head?.(anExchange({ headers }));
    await clock.advance(ms - 1);
    assert.equal(clock.pending(), 1);
    await clock.advance(1);
    assert.equal(await waiting, undefined);
    assert.equal(clock.pending(), 0);
  });

for (const duration of [
  "0s",
  'request.headers["x-slow"] == "1" ? 2000 : 0',
  "request.headers.none",
  "-5",
  '"soon"',
  "true",
])
  test(`${duration} does not wait`, () => {
    assert.equal(compiled(duration).hooks.shape?.head?.(anExchange()), undefined);
  });

for (const config of [{}, { duration: "" }, { duration: "5 seconds" }, { duration: 5 }, { duration: "1s", more: 1 }])
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(delay.schema.safeParse(config).success, false);
  });
