import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { systemClock } from "../../base/clock.ts";
import type { AdmitHook, Charge, CompiledPolicy, Hooks, NamedIdentity, RequestHook } from "../../core/policy.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { settle } from "./delivery.ts";
import { runAdmission, runBodyHooks } from "./run-hooks.ts";

type Accepts<Hook, Value> = Value extends Hook ? true : false;
type AsyncHook = () => Promise<undefined>;

/** Each line fails to compile if an async function becomes a valid value of that hook. */
const asyncIsRejected: {
  readonly admitHead: Accepts<AdmitHook["head"], AsyncHook>;
  readonly admitBody: Accepts<AdmitHook["body"], AsyncHook>;
  readonly admitCall: Accepts<AdmitHook["call"], AsyncHook>;
  readonly body: Accepts<RequestHook["body"], AsyncHook>;
  readonly bodyBytes: Accepts<RequestHook["bodyBytes"], AsyncHook>;
  readonly settle: Accepts<Hooks["settle"], AsyncHook>;
  readonly given: Accepts<NamedIdentity["given"], AsyncHook>;
  readonly take: Accepts<Charge["take"], AsyncHook>;
  readonly giveBack: Accepts<Charge["giveBack"], AsyncHook>;
} = {
  admitHead: false,
  admitBody: false,
  admitCall: false,
  body: false,
  bodyBytes: false,
  settle: false,
  given: false,
  take: false,
  giveBack: false,
};

const rejection = (): Promise<never> => Promise.reject(new Error("forbidden"));
const SYNCHRONOUS_ONLY = /returned a promise; only access, shape and response hooks may wait/;

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
    isDry: false,
    fail: (error: unknown): void => void errors.push(error),
  };
  return { errors, run };
}

test("an async function is not a valid synchronous hook", () => {
  assert.deepEqual(new Set(Object.values(asyncIsRejected)), new Set([false]));
});

function aPolicy(hooks: Hooks): CompiledPolicy {
  return { kind: "limit", phase: "route", hooks };
}

for (const step of ["access", "shape"])
  test(`a promise from a body function of ${step} rejects the request`, () => {
    const { errors, run } = aRun();
    assert.equal(runBodyHooks(run, [aPolicy(untyped({ [step]: { body: rejection } }))]), false);
    assert.match(String(errors[0]), SYNCHRONOUS_ONLY);
  });

for (const on of ["head", "body", "call"] as const) {
  test(`a promise from the ${on} function of admit rejects the request`, () => {
    const { errors, run } = aRun();
    const policy = aPolicy(untyped({ admit: { [on]: rejection } }));
    runAdmission(run, on, [policy], () => assert.fail("the request passed"));
    assert.match(String(errors[0]), SYNCHRONOUS_ONLY);
  });
}

test("a charge whose take() returns a promise rejects the request, and earlier charges are returned", () => {
  const { errors, run } = aRun();
  const returned: string[] = [];
  const first: Charge = { take: () => undefined, giveBack: () => void returned.push("first") };
  const promising = { admit: { head: () => ({ take: rejection, giveBack: () => undefined }) } };
  runAdmission(run, "head", [aPolicy({ admit: { head: () => first } }), aPolicy(untyped(promising))], () =>
    assert.fail("the request passed"),
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
