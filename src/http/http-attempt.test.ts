/**
 * Checks every order of carrier and consumer events up to a depth, and long random sequences, against a small model:
 * the calls that reach the consumer, and whether the carrier was stopped. The consumer also acts inside its callbacks.
 */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { HeaderList } from "./headers.ts";
import { type AttemptEvent, type AttemptState, afterEvent, type Carrier, HttpAttempt, isOver } from "./http-attempt.ts";
import { HttpClientError } from "./http-client.ts";

const CARRIER = ["head", "data", "end", "error", "upgrade"] as const;
const CONSUMER = ["abort", "resume"] as const;
/** What the consumer does inside the next callback. */
const INSIDE = ["nothing", "abort", "resume", "throw", "abort+throw", "pause"] as const;
type Outer = (typeof CARRIER)[number] | (typeof CONSUMER)[number];
type Inner = (typeof INSIDE)[number];
/** One event, and what the consumer does inside its callback. */
type Step = readonly [event: Outer, inside: Inner];

/** Carriers that call back while they are stopped or resumed, as sockets do. */
type Manner = "quiet" | "error in stop" | "data in proceed" | "end in proceed";
const MANNERS: readonly Manner[] = ["quiet", "error in stop", "data in proceed", "end in proceed"];

interface Seen {
  readonly heard: string[];
  stops: number;
  proceeds: number;
  /** The results of `data`, in order. */
  readonly reading: boolean[];
}

function run(steps: readonly Step[], manner: Manner): Seen {
  const seen: Seen = { heard: [], stops: 0, proceeds: 0, reading: [] };
  let inside: Inner = "nothing";
  const carrier: Carrier = {
    stop(one) {
      seen.stops += 1;
      if (manner === "error in stop") one.fail(new HttpClientError("response", "closed"));
    },
    proceed(one) {
      seen.proceeds += 1;
      if (manner === "data in proceed") one.data(Buffer.from("x"));
      if (manner === "end in proceed") one.end([]);
    },
  };
  const act = (name: string): boolean => {
    seen.heard.push(name);
    const now = inside;
    inside = "nothing";
    if (now === "abort" || now === "abort+throw") attempt.abort();
    if (now === "resume") attempt.resume();
    if (now === "throw" || now === "abort+throw") throw new Error("a defect");
    return now !== "pause" && now !== "resume";
  };
  const attempt = new HttpAttempt(carrier, {
    head: () => void act("head"),
    data: () => act("data"),
    end: () => void act("end"),
    fail: (error) => void act(error.kind === "internal" ? "internal" : "error"),
    upgraded: () => void act("upgrade"),
  });
  for (const [event, then] of steps) {
    inside = then;
    if (event === "head") attempt.head(200, new HeaderList());
    else if (event === "data") seen.reading.push(attempt.data(Buffer.from("x")));
    else if (event === "end") attempt.end([]);
    else if (event === "error") attempt.fail(new HttpClientError("response", "broke"));
    else if (event === "upgrade") attempt.upgraded(101, new HeaderList(), new PassThrough());
    else if (event === "abort") attempt.abort();
    else attempt.resume();
    inside = "nothing";
  }
  return seen;
}

/** The model without callbacks: the state, and the effect of each event. */
function model(steps: readonly Step[], manner: Manner): Seen {
  const seen: Seen = { heard: [], stops: 0, proceeds: 0, reading: [] };
  let state: "waiting" | "responding" | "over" = "waiting";

  const stop = (): void => {
    if (state === "over") return;
    state = "over";
    seen.stops += 1;
  };
  const proceed = (): void => {
    if (state === "over") return;
    seen.proceeds += 1;
    if (state !== "responding") return;
    if (manner === "data in proceed") seen.heard.push("data");
    if (manner === "end in proceed") {
      seen.heard.push("end");
      state = "over";
    }
  };
  /** Returns whether the carrier continues to read. */
  const hear = (name: string, inside: Inner): boolean => {
    const wasLast = state === "over";
    seen.heard.push(name);
    if (inside === "abort" || inside === "abort+throw") stop();
    if (inside === "resume") proceed();
    if (inside === "throw" || inside === "abort+throw") {
      const toldAlready = name === "error" || name === "internal";
      if (!toldAlready && (wasLast || (state as string) !== "over")) {
        stop();
        seen.heard.push("internal");
      }
      return true;
    }
    return inside !== "pause" || (state as string) === "over";
  };
  for (const [event, inside] of steps) {
    if (event === "abort") stop();
    else if (event === "resume") {
      if ((state as string) === "over") continue;
      seen.proceeds += 1;
      if (state !== "responding") continue;
      if (manner === "data in proceed") hear("data", inside);
      else if (manner === "end in proceed") {
        state = "over";
        hear("end", inside);
      }
    } else if (event === "head" && state === "waiting") {
      state = "responding";
      hear("head", inside);
    } else if (event === "data") seen.reading.push(state === "responding" ? hear("data", inside) : true);
    else if (event === "end" && state === "responding") {
      state = "over";
      hear("end", inside);
    } else if (event === "upgrade" && state === "waiting") {
      state = "over";
      hear("upgrade", inside);
    } else if (event === "error" && state !== "over") {
      state = "over";
      hear("error", inside);
    }
  }
  return seen;
}

/** Guarantees that hold independently of the model. */
function checkGuarantees({ heard, stops }: Seen): void {
  const last = heard.findIndex((name) => name !== "head" && name !== "data");
  // After `end` or `upgraded` threw, only the error that reports it may follow.
  const rest = last < 0 ? [] : heard.slice(last + 1);
  assert.ok(rest.length === 0 || (rest.length === 1 && rest[0] === "internal"), "something came after the end");
  assert.ok(stops <= 1);
  assert.ok(heard.filter((name) => name === "head").length <= 1);
}

const silent = (): void => undefined;
/** Exceptions without a handler are process errors, which would end the test. */
function withoutLastResort(action: () => void): void {
  const { queueMicrotask } = globalThis;
  globalThis.queueMicrotask = silent;
  try {
    action();
  } finally {
    globalThis.queueMicrotask = queueMicrotask;
  }
}

function check(steps: readonly Step[], manner: Manner): void {
  const seen = run(steps, manner);
  try {
    checkGuarantees(seen);
    assert.deepEqual(seen, model(steps, manner));
  } catch (cause) {
    throw new Error(`${manner}: ${JSON.stringify(steps)} gave ${seen.heard}`, { cause });
  }
}

const ALL_STEPS: Step[] = [
  ...CARRIER.flatMap((event) => INSIDE.map((inside): Step => [event, inside])),
  ["abort", "nothing"],
  ...INSIDE.map((inside): Step => ["resume", inside]),
];
const DEPTH = 3;

for (const manner of MANNERS) {
  test(`every order of ${DEPTH} events, each with everything the consumer may do inside it: ${manner}`, () => {
    let count = 0;
    const walk = (steps: readonly Step[]): void => {
      count += 1;
      check(steps, manner);
      if (steps.length < DEPTH) for (const step of ALL_STEPS) walk([...steps, step]);
    };
    withoutLastResort(() => walk([]));
    assert.equal(count, 1 + ALL_STEPS.length + ALL_STEPS.length ** 2 + ALL_STEPS.length ** 3);
  });

  test(`every order of 5 events after a head, with a quiet consumer: ${manner}`, () => {
    const quiet: Step[] = [...CARRIER, ...CONSUMER].map((event) => [event, "nothing"]);
    const walk = (steps: readonly Step[]): void => {
      check(steps, manner);
      if (steps.length < 6) for (const step of quiet) walk([...steps, step]);
    };
    walk([["head", "nothing"]]);
  });
}

test("long random sequences match the model", () => {
  const step = fc.constantFrom(...ALL_STEPS);
  const steps = fc.array(fc.oneof({ weight: 3, arbitrary: fc.constant<Step>(["data", "nothing"]) }, step), {
    maxLength: 60,
  });
  withoutLastResort(() =>
    fc.assert(
      fc.property(steps, fc.constantFrom(...MANNERS), (rest, manner) => check([["head", "nothing"], ...rest], manner)),
      { numRuns: 2_000, seed: 7 },
    ),
  );
});

test("the table has two active and three final states, and no event leaves a final state", () => {
  const states: AttemptState[] = ["waiting", "responding", "ended", "failed", "abandoned"];
  const events: AttemptEvent[] = ["head", "data", "end", "upgrade", "error", "abort"];
  const table = Object.fromEntries(
    states.map((state) => [state, events.map((event) => afterEvent(state, event) ?? "-").join(" ")]),
  );
  assert.deepEqual(table, {
    waiting: "responding - - ended failed abandoned",
    responding: "- responding ended - failed abandoned",
    ended: "- - - - - -",
    failed: "- - - - - -",
    abandoned: "- - - - - -",
  });
  assert.deepEqual(states.filter(isOver), ["ended", "failed", "abandoned"]);
});

test("an upgrade that is not accepted is closed", () => {
  for (const before of ["abort", "no handler"]) {
    const attempt = new HttpAttempt(
      { stop: silent, proceed: silent },
      {
        head: silent,
        data: () => true,
        end: silent,
        fail: silent,
        ...(before === "abort" ? { upgraded: silent } : {}),
      },
    );
    if (before === "abort") attempt.abort();
    const socket = new PassThrough();
    attempt.upgraded(101, new HeaderList(), socket);
    assert.ok(socket.destroyed);
  }
});
