import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import type { Backend, PreparedCall, ResponseReceiver } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { RetrySettings } from "../../core/policy.ts";
import type { Targets } from "../../core/targets.ts";
import type { WeightedBackend } from "../../core/topology.ts";
import { HeaderList } from "../../http/headers.ts";
import { HttpClientError } from "../../http/http-client.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { AttemptRunner } from "./attempt-runner.ts";

type Outcome = HttpClientError | GatewayError | 503;

const unavailable = new GatewayError("backend_unavailable");
const stale = new HttpClientError("stale", "closed");
const refused = new HttpClientError("connect", "refused");
const reset = new HttpClientError("response", "reset");

interface Run {
  readonly outcome: Outcome;
  /** Of each attempt, in order. The last one applies to further attempts. */
  readonly retries: readonly (RetrySettings | undefined)[];
  readonly method?: string;
  readonly isTaken?: boolean;
  readonly hasOtherEndpoints?: boolean;
  /** The targets that the backend itself can call. */
  readonly targets?: number;
}

/** Returns the wait before each attempt, and what ended the attempts. */
function run({ outcome, retries, method = "GET", isTaken = false, hasOtherEndpoints = false, targets = 0 }: Run) {
  const exchange = anExchange({ method, ...(isTaken ? { body: "x" } : {}) });
  if (isTaken) exchange.request.body = { kind: "stream", stream: undefined as never, length: 1, taken: true };
  exchange.upstream.hasOtherEndpoints = hasOtherEndpoints;
  const waits: number[] = [];
  const calls: number[] = [];
  let attempts = 0;
  let end = "none";
  const endWith = (name: string) => (): void => {
    end = name;
  };
  const respond = (call: ResponseReceiver): void => {
    if (outcome === 503) call.head(503, new HeaderList());
    else call.fail(outcome);
  };
  const backend: Backend = {
    attributes: { name: "b", type: "static", protocol: "http" },
    defaultTimeoutMs: 0,
    describe: () => ({}),
    prepare: () => prepared,
  };
  const prepared: PreparedCall = {
    call(call) {
      let left = targets;
      const callNext = (): void => {
        calls.push(left);
        left -= 1;
        if (!call.next(own, { reason: "down" })) respond(call);
      };
      const own: Targets = {
        get left() {
          return left;
        },
        takeNext: () => (left > 0 ? callNext : undefined),
      };
      if (targets > 0) callNext();
      else respond(call);
      return { abort: () => undefined, resume: () => undefined };
    },
  };
  const callNext = (): void => {
    const retry = retries[Math.min(attempts, retries.length - 1)];
    attempts += 1;
    const settings = retry === undefined ? {} : { retry };
    runner.call({ backend, weight: 1, policies: { settings } } as unknown as WeightedBackend, prepared);
  };
  const runner = new AttemptRunner(
    {
      clock: {
        now: () => 0,
        monotonicMs: () => 0,
        every: () => ({ cancel: () => undefined }),
        after(delayMs, callback) {
          waits.push(delayMs);
          callback();
          return { cancel: () => undefined };
        },
      },
      redaction: createRedaction(),
      callNext,
      fail: endWith("failed"),
      broke: endWith("broke"),
      upgraded: endWith("upgraded"),
      isUploading: () => false,
    },
    exchange,
    {
      run: undefined,
      canReplace: true,
      isDone: false,
      head: endWith("response"),
      data: () => true,
      end: () => undefined,
      breakOff: () => undefined,
    },
  );
  callNext();
  return { attempts, waits, end, calls };
}

const policy = (attempts: number, backoffMs: number): RetrySettings => ({ attempts, backoffMs, codes: new Set([503]) });

const cases: readonly (readonly [name: string, run: Run, attempts: number, waits: readonly number[], end: string])[] = [
  [
    "without a policy, a closed reused connection is retried once, at once",
    { outcome: stale, retries: [undefined] },
    2,
    [],
    "failed",
  ],
  ["without a policy, no other failure is retried", { outcome: unavailable, retries: [undefined] }, 1, [], "failed"],
  ["without a policy, no status is retried", { outcome: 503, retries: [undefined] }, 1, [], "response"],
  [
    "a POST is not repeated on a closed connection",
    { outcome: stale, retries: [undefined], method: "POST" },
    1,
    [],
    "failed",
  ],
  [
    "an endpoint that refuses is replaced if there are others",
    { outcome: refused, retries: [undefined], hasOtherEndpoints: true, method: "POST" },
    2,
    [],
    "failed",
  ],
  [
    "an endpoint that refuses is not replaced if it is the only one",
    { outcome: refused, retries: [undefined] },
    1,
    [],
    "failed",
  ],
  [
    "a policy allows its number of retries, and the wait doubles",
    { outcome: unavailable, retries: [policy(3, 50)] },
    4,
    [50, 100, 200],
    "failed",
  ],
  ["a backoff of 0 retries at once", { outcome: unavailable, retries: [policy(2, 0)] }, 3, [], "failed"],
  ["0 attempts retry nothing", { outcome: stale, retries: [policy(0, 0)] }, 1, [], "failed"],
  [
    "the settings of the last chosen backend apply",
    { outcome: unavailable, retries: [policy(5, 10), undefined] },
    2,
    [10],
    "failed",
  ],
  [
    "the last response of a listed status is the response",
    { outcome: 503, retries: [policy(2, 10)] },
    3,
    [10, 20],
    "response",
  ],
  [
    "a POST is repeated on a listed status",
    { outcome: 503, retries: [policy(1, 10)], method: "POST" },
    2,
    [10],
    "response",
  ],
  [
    "a POST is repeated if the connection was refused",
    { outcome: refused, retries: [policy(1, 10)], method: "POST" },
    2,
    [10],
    "failed",
  ],
  [
    "a POST is not repeated after it was sent",
    { outcome: reset, retries: [policy(1, 10)], method: "POST" },
    1,
    [],
    "failed",
  ],
  [
    "a body that was streamed is not repeated",
    { outcome: 503, retries: [policy(1, 10)], method: "PUT", isTaken: true },
    1,
    [],
    "response",
  ],
];
for (const [name, input, attempts, waits, end] of cases)
  test(name, () => assert.deepEqual(run(input), { attempts, waits, end, calls: [] }));

test("the backend's own targets are called before the route's backend is called again", () => {
  const outcome = run({ outcome: unavailable, retries: [policy(1, 10)], targets: 3 });
  assert.deepEqual(outcome, { attempts: 2, waits: [10], end: "failed", calls: [3, 2, 1, 3, 2, 1] });
});

test("without a retry policy, the backend's own targets are called all the same", () => {
  const outcome = run({ outcome: 503, retries: [undefined], targets: 2 });
  assert.deepEqual(outcome, { attempts: 1, waits: [], end: "response", calls: [2, 1] });
});
