import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { GatewayError } from "../../core/errors.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { type FailureDelivery, Failures } from "./delivery.ts";

/** What the client and the log get. `hooksThrow` makes the response fail that many times. */
function setup(state: { isDone?: boolean; canReplace?: boolean; hooksThrow?: number } = {}) {
  const heard: string[] = [];
  const exchange = anExchange({ headers: { authorization: "Bearer secret-token-1234" } });
  let throws = state.hooksThrow ?? 0;
  const delivery: FailureDelivery = {
    run: { abort: () => void heard.push("abort"), resume: () => undefined },
    isDone: state.isDone ?? false,
    canReplace: state.canReplace ?? true,
    reply: ({ status }, withHooks) => {
      heard.push(`${status} ${withHooks ? "with" : "without"} hooks`);
      throws -= 1;
      if (throws >= 0) throw new Error("a hook broke");
    },
    breakOff: () => void heard.push("break off"),
  };
  const env = { redaction: createRedaction(), defect: () => void heard.push("defect") };
  return { heard, exchange, delivery, failures: new Failures(env, exchange, delivery, () => undefined) };
}

test("a failure becomes a response, and the backend's run is aborted once", () => {
  const { heard, failures, exchange, delivery } = setup();
  failures.answer(new GatewayError("backend_unavailable"));
  assert.deepEqual(heard, ["abort", "502 with hooks"]);
  assert.equal(exchange.failure?.code, "backend_unavailable");
  assert.equal(delivery.run, undefined);
});

test("an error other than a GatewayError is a defect: it is logged, and the client gets 500", () => {
  const { heard, failures } = setup();
  failures.answer(new TypeError("x is undefined"));
  assert.deepEqual(heard, ["defect", "abort", "500 with hooks"]);
});

test("a hook that breaks the response is skipped for the next; if that breaks too, the connection ends", () => {
  const once = setup({ hooksThrow: 1 });
  once.failures.answer(new GatewayError("backend_unavailable"));
  assert.deepEqual(once.heard, ["abort", "502 with hooks", "defect", "500 without hooks"]);
  const twice = setup({ hooksThrow: 2 });
  twice.failures.answer(new GatewayError("backend_unavailable"));
  assert.equal(twice.heard.at(-1), "break off");
});

test("after the head went out the connection is cut, and after the end nothing happens", () => {
  const streaming = setup({ canReplace: false });
  streaming.failures.answer(new GatewayError("backend_timeout"));
  assert.deepEqual(streaming.heard, ["abort", "break off"]);
  const done = setup({ isDone: true });
  done.failures.answer(new GatewayError("backend_timeout"));
  assert.deepEqual(done.heard, []);
  assert.equal(done.exchange.failure, undefined);
});

test("a reason that quotes the client's credential is recorded without it", () => {
  const { failures, exchange } = setup();
  failures.answer(new GatewayError("backend_unavailable", { detail: "rejected secret-token-1234" }));
  assert.doesNotMatch(exchange.failure?.detail ?? "", /secret-token-1234/);
});
