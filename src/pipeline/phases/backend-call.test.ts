/**
 * Checks every order of backend events, client events and timeouts up to a depth, with events nested inside the
 * backend's call and inside each other: the client gets exactly one response or one failure, and an aborted run is
 * aborted once.
 */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import type { Backend, PreparedCall, ResponseReceiver } from "../../core/backend.ts";
import type { Targets } from "../../core/targets.ts";
import type { WeightedBackend } from "../../core/topology.ts";
import { BodyIncomplete } from "../../http/body.ts";
import { HeaderList } from "../../http/headers.ts";
import { HttpClientError } from "../../http/http-client.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import {
  type AttemptOwner,
  AttemptRunner,
  BackendCall,
  backendError,
  type CallDelivery,
  timeoutDetail,
} from "./attempt-runner.ts";

const EVENTS = ["head", "503", "data", "end", "fail", "next", "upgraded", "abort", "resume", "timeout"] as const;
type Event = (typeof EVENTS)[number] | "defect";
/** What the pipeline does inside a callback. */
const INSIDE = ["nothing", "abort", "throw", "end"] as const;
type Inside = (typeof INSIDE)[number];

/** The events that end an attempt. */
const LAST = new Set(["end", "breakOff", "failed", "upgraded", "defect", "abort"]);

function run(events: readonly Event[], early: number, inside: Inside, isLast: boolean): string[] {
  const heard: string[] = [];
  const timers = new Set<() => void>();
  let pending: Inside = inside;
  const hear = (name: string): void => {
    heard.push(name);
    const now = pending;
    pending = "nothing";
    if (now === "abort") giveUp();
    if (now === "end") current?.end();
    if (now === "throw") throw new Error("a defect");
  };
  const giveUp = (): void => {
    heard.push("abort");
    current?.abort();
  };
  let current: BackendCall | undefined;
  const delivery: CallDelivery = {
    run: undefined,
    get canReplace() {
      return !heard.includes("head");
    },
    isDone: false,
    head: () => hear("head"),
    data: () => {
      hear("data");
      return true;
    },
    end: () => hear("end"),
    breakOff: () => hear("breakOff"),
  };
  const owner: AttemptOwner = {
    clock: {
      now: () => 0,
      monotonicMs: () => 0,
      every: () => ({ cancel: () => undefined }),
      after: (_delayMs, callback) => {
        timers.add(callback);
        return { cancel: () => void timers.delete(callback) };
      },
    },
    redaction: createRedaction(),
    upgraded: () => hear("upgraded"),
    fail: () => hear("failed"),
    callNext: () => hear("failed"),
    broke: () => void heard.push("defect"),
    isUploading: () => false,
  };
  const play = (event: Event, call: ResponseReceiver): void => {
    if (event === "head") call.head(200, new HeaderList());
    else if (event === "503") call.head(503, new HeaderList());
    else if (event === "data") call.data(Buffer.from("x"));
    else if (event === "end") call.end();
    else if (event === "fail") call.fail(new HttpClientError("response", "broke"));
    else if (event === "defect") call.fail(new Error("broke"));
    else if (event === "next") call.next(targets, { reason: "busy" });
    else if (event === "upgraded") call.upgraded(101, new HeaderList(), new PassThrough());
    else if (event === "abort") giveUp();
    else if (event === "resume") current?.resume();
    else for (const callback of [...timers]) callback();
  };
  const targets: Targets = {
    left: 1,
    takeNext() {
      heard.push("run.left");
      return () => void heard.push("run.next");
    },
  };
  const backend: Backend = {
    attributes: { name: "b", type: "static", protocol: "http" },
    defaultTimeoutMs: 1_000,
    describe: () => ({}),
    prepare: () => prepared,
  };
  const prepared: PreparedCall = {
    call(call) {
      if (call instanceof BackendCall) current = call;
      for (const event of events.slice(0, early)) play(event, call);
      return { abort: () => void heard.push("run.abort"), resume: () => void heard.push("run.resume") };
    },
  };
  const settings = { retry: { attempts: isLast ? 0 : 1, backoffMs: 0, codes: new Set([503]) } };
  const chosen = { backend, weight: 1, policies: { settings } } as unknown as WeightedBackend;
  new AttemptRunner(owner, anExchange(), delivery).call(chosen, prepared);
  assert.ok(current);
  for (const event of events.slice(early)) play(event, current);
  return heard;
}

function check(heard: readonly string[]): void {
  const toClient = heard.filter((name) => !name.startsWith("run.") && name !== "abort");
  const last = toClient.findIndex((name) => LAST.has(name));
  // A defect is reported after the event that caused it, and nothing else may follow.
  const rest = last < 0 ? [] : toClient.slice(last + 1);
  assert.ok(rest.length === 0 || (rest.length === 1 && rest[0] === "defect"));
  assert.ok(toClient.filter((name) => name === "head").length <= 1);
  assert.ok(!toClient.includes("data") || toClient.includes("head"));
  const given = heard.indexOf("abort");
  // After an abort, only a defect of the aborting code and a retry's own report may follow.
  if (given >= 0) {
    const after = heard
      .slice(given + 1)
      .filter((name) => name !== "run.abort" && name !== "abort" && name !== "defect");
    assert.deepEqual(after, []);
  }
  assert.ok(heard.filter((name) => name === "run.abort").length <= 1);
  const isOverByItself = toClient.some((name) => ["end", "breakOff", "upgraded"].includes(name));
  // Aborted while it ran: the backend is notified, even if it had not returned its run yet.
  if (given >= 0 && !isOverByItself && !toClient.includes("failed")) assert.ok(heard.includes("run.abort"));
  if (!isOverByItself && given < 0 && !LAST.has(toClient.at(-1) ?? "")) assert.ok(!heard.includes("run.abort"));
  // After an abort the run is not resumed.
  const aborted = heard.indexOf("run.abort");
  if (aborted >= 0) assert.ok(!heard.slice(aborted).includes("run.resume"));
  // Another target is called only while the client has no response.
  const over = heard.findIndex((name) => name === "head" || name === "abort" || LAST.has(name));
  if (over >= 0) assert.ok(!heard.slice(over).includes("run.next"));
}

const DEPTH = 4;
for (const inside of INSIDE) {
  for (const isLast of [true, false]) {
    test(`every order of ${DEPTH} events, ${inside} inside the first, ${isLast ? "last try" : "may be tried again"}`, () => {
      const walk = (events: readonly Event[]): void => {
        for (let early = 0; early <= events.length; early++) {
          const heard = run(events, early, inside, isLast);
          try {
            check(heard);
          } catch (cause) {
            throw new Error(`${events} (${early} early) gave ${heard}`, { cause });
          }
        }
        if (events.length < DEPTH) for (const event of EVENTS) walk([...events, event]);
      };
      walk([]);
    });
  }
}

test("a run whose retried status arrives before the run is returned is aborted once it is returned", () => {
  assert.deepEqual(run(["503"], 1, "nothing", false), ["failed", "run.abort"]);
  assert.deepEqual(run(["503"], 0, "nothing", false), ["run.abort", "failed"]);
  assert.deepEqual(run(["503"], 1, "nothing", true), ["head"]);
});

test("a defect while a response arrives is reported as one, not as the backend's failure", () => {
  assert.deepEqual(run(["head", "defect"], 0, "nothing", true), ["head", "defect"]);
  assert.deepEqual(run(["head", "fail"], 0, "nothing", true), ["head", "breakOff"]);
  assert.deepEqual(run(["defect"], 0, "nothing", true), ["failed"]);
});

test("a client that leaves before its body is complete is no defect of the gateway", () => {
  assert.equal(backendError(new BodyIncomplete()).code, "bad_request");
  assert.equal(backendError(new TypeError("x")).code, "internal");
});

const timeouts: [name: string, settings: object, limitMs: number, spares: number, detail: string][] = [
  ["of the whole request", { requestTimeoutMs: 1_000 }, 984, 0, "1 s (timeout.requestTimeout)"],
  [
    "of the whole request, shared",
    { requestTimeoutMs: 30_000 },
    9_999,
    2,
    "10 s, a share of 30 s (timeout.requestTimeout)",
  ],
  ["of a backend", { backendTimeoutMs: 250 }, 250, 1, "250 ms (timeout.backendRequestTimeout)"],
  [
    "of a backend, with time left",
    { backendTimeoutMs: 1_500, requestTimeoutMs: 9_000 },
    1_500,
    0,
    "1.5 s (timeout.backendRequestTimeout)",
  ],
  [
    "of the whole request before that of a backend",
    { backendTimeoutMs: 5_000, requestTimeoutMs: 9_000 },
    312,
    3,
    "9 s (timeout.requestTimeout)",
  ],
  ["of neither", {}, 60_000, 0, "60 s (the default of timeout.requestTimeout)"],
];
for (const [name, settings, limitMs, spares, detail] of timeouts)
  test(`a timeout ${name} names the setting and its value`, () => {
    assert.equal(timeoutDetail(settings, 60_000, limitMs, spares), `no response headers within ${detail}`);
  });
