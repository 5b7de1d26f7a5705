import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { systemClock } from "../../base/clock.ts";
import type { Charge, Hooks } from "../../core/policy.ts";
import { createRedaction } from "../../observe/trace/redact.ts";
import { settle } from "./delivery.ts";
import { type AdmissionHook, runAdmission, runParsedHooks } from "./run-hooks.ts";

type Accepts<Hook, Value> = Value extends Hook ? true : false;
type AsyncHook = () => Promise<undefined>;

/** Each line fails to compile if an async function becomes a valid value of that hook. */
const asyncIsRejected: {
  readonly admit: Accepts<Hooks["admit"], AsyncHook>;
  readonly parsed: Accepts<Hooks["parsed"], AsyncHook>;
  readonly admitParsed: Accepts<Hooks["admitParsed"], AsyncHook>;
  readonly llmRequest: Accepts<Hooks["llmRequest"], AsyncHook>;
  readonly settle: Accepts<Hooks["settle"], AsyncHook>;
  readonly assume: Accepts<Hooks["assume"], AsyncHook>;
  readonly bodyBytes: Accepts<Hooks["bodyBytes"], AsyncHook>;
  readonly take: Accepts<Charge["take"], AsyncHook>;
  readonly giveBack: Accepts<Charge["giveBack"], AsyncHook>;
} = {
  admit: false,
  parsed: false,
  admitParsed: false,
  llmRequest: false,
  settle: false,
  assume: false,
  bodyBytes: false,
  take: false,
  giveBack: false,
};

const rejection = (): Promise<never> => Promise.reject(new Error("forbidden"));
const SYNCHRONOUS_ONLY = /returned a promise; only request, recall and response hooks may wait/;

/** Represents plain JavaScript, which is not type-checked. */
function untyped(hooks: Readonly<Record<string, unknown>>): Hooks {
  return hooks as Hooks;
}

function aRun(): { errors: unknown[]; run: Parameters<typeof runAdmission>[0] } {
  const errors: unknown[] = [];
  const run = {
    exchange: anExchange(),
    clock: systemClock,
    redaction: createRedaction(),
    fail: (error: unknown): void => void errors.push(error),
  };
  return { errors, run };
}

test("an async function is not a valid synchronous hook", () => {
  assert.deepEqual(new Set(Object.values(asyncIsRejected)), new Set([false]));
});

test("a parsed hook that returns a promise rejects the request", () => {
  const { errors, run } = aRun();
  const policy = { kind: "rule", hooks: untyped({ parsed: rejection }) };
  assert.equal(runParsedHooks(run, [{ phase: "route", policy }]), false);
  assert.match(String(errors[0]), SYNCHRONOUS_ONLY);
});

const admissionHooks: readonly AdmissionHook[] = ["admit", "admitParsed", "llmRequest"];
for (const hook of admissionHooks) {
  test(`a promise from ${hook} rejects the request`, () => {
    const { errors, run } = aRun();
    const policy = { kind: "limit", hooks: untyped({ [hook]: rejection }) };
    runAdmission(run, hook, [{ phase: "route", policy }], () => assert.fail("the request passed"));
    assert.match(String(errors[0]), SYNCHRONOUS_ONLY);
  });
}

test("a charge whose take() returns a promise rejects the request, and earlier charges are returned", () => {
  const { errors, run } = aRun();
  const returned: string[] = [];
  const first: Charge = { take: () => undefined, giveBack: () => void returned.push("first") };
  const scoped = (hooks: Hooks) => ({ phase: "route" as const, policy: { kind: "limit", hooks } });
  runAdmission(
    run,
    "admit",
    [
      scoped({ admit: () => first }),
      scoped(untyped({ admit: () => ({ take: rejection, giveBack: () => undefined }) })),
    ],
    () => assert.fail("the request passed"),
  );
  assert.match(String(errors[0]), SYNCHRONOUS_ONLY);
  assert.deepEqual(returned, ["first"]);
});

test("a settle hook that returns a promise is reported as a defect", () => {
  const defects: unknown[] = [];
  const exchange = anExchange();
  const scope = { settle: [{ kind: "limit", hooks: untyped({ settle: rejection }) }] };
  settle(
    { settled: () => undefined, defect: (_exchange, error) => void defects.push(error) },
    exchange,
    [scope as unknown as Parameters<typeof settle>[2][number]],
    { status: 200, end: "complete", responseBytes: 0 },
    undefined,
  );
  assert.match(String(defects[0]), SYNCHRONOUS_ONLY);
});
