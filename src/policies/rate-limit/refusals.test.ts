import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { limitEnv, limitExchange, settleAll } from "../../../test/support/rate-limit-service/limit-env.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { AdmitHook, Charge, CompiledPolicy, Hooks, Outcome } from "../../core/policy.ts";
import { type HookRun, runAdmission, runBodyHooks } from "../../pipeline/phases/run-hooks.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { rateLimit } from "./policy.ts";

const STAGES: readonly (keyof AdmitHook)[] = ["head", "body", "call"];
type Refuser = keyof AdmitHook | "rule" | "none";

/** The limits, each with the stage at which it is checked and the bucket that a request uses. */
interface Entry {
  readonly scope: 0 | 1;
  readonly stage: keyof AdmitHook;
  readonly config: Record<string, unknown>;
  readonly capacity: number;
  readonly refill: number;
  readonly windowMs: number;
  key(request: Request): string;
}
const ENTRIES: readonly Entry[] = [
  {
    scope: 0,
    stage: "head",
    config: { requests: 4, unit: "Seconds", burst: 3 },
    ...{ capacity: 7, refill: 4, windowMs: 1000 },
    key: () => "",
  },
  {
    scope: 1,
    stage: "head",
    config: { requests: 3, unit: "Minutes", key: "jwt.sub" },
    ...{ capacity: 3, refill: 3, windowMs: 60_000 },
    key: ({ user }) => user,
  },
  {
    scope: 1,
    stage: "body",
    config: { requests: 2, unit: "Seconds", key: "mcp.tool.name" },
    ...{ capacity: 2, refill: 2, windowMs: 1000 },
    key: ({ tool }) => tool,
  },
  {
    scope: 0,
    stage: "call",
    config: { tokens: 150, unit: "Minutes" },
    ...{ capacity: 150, refill: 150, windowMs: 60_000 },
    key: () => "",
  },
  {
    scope: 1,
    stage: "call",
    config: { tokens: 100, unit: "Seconds", key: "jwt.sub", reserveOutput: true },
    ...{ capacity: 100, refill: 100, windowMs: 1000 },
    key: ({ user }) => user,
  },
];

interface Request {
  readonly kind: "request";
  readonly user: string;
  readonly tool: string;
  readonly estimate: number | undefined;
  readonly maximum: number;
  /** What rejects the request besides the limits: a rule about the body, or a service called after one stage's limits. */
  readonly refuser: Refuser;
}
type Command =
  | Request
  | { readonly kind: "end"; readonly which: number; readonly how: End; readonly used: number }
  | { readonly kind: "wait"; readonly ms: number };
/** How a call ends: a response with usage, aborted or failed after some text, rejected by the provider, or unknown. */
type End = "usage" | "left" | "refused" | "timeout" | "silent";

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 5, arbitrary: requests() },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("end" as const),
      which: fc.nat(5),
      how: fc.constantFrom<End>("usage", "left", "refused", "timeout", "silent"),
      used: fc.nat(200),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 400, 999, 1000, 7000, 60_000) }),
  },
);

function requests(): fc.Arbitrary<Request> {
  return fc.record({
    kind: fc.constant("request" as const),
    user: fc.constantFrom("alice", "bob", ""),
    tool: fc.constantFrom("read", "write", ""),
    estimate: fc.option(fc.integer({ min: 1, max: 40 }), { nil: undefined }),
    maximum: fc.integer({ min: 0, max: 110 }),
    refuser: fc.constantFrom<Refuser>("none", "none", "none", "head", "rule", "body", "call"),
  });
}

/** A reference model of one bucket. */
class Bucket {
  readonly #entry: Entry;
  #left: number;
  #windowEndsMs: number | undefined;

  constructor(entry: Entry) {
    this.#entry = entry;
    this.#left = entry.capacity;
  }

  left(nowMs: number): number {
    for (; this.#windowEndsMs !== undefined && this.#windowEndsMs <= nowMs; this.#windowEndsMs += this.#entry.windowMs)
      this.#left = Math.min(this.#entry.capacity, this.#left + this.#entry.refill);
    return this.#left;
  }

  take(amount: number, nowMs: number): number {
    const before = this.left(nowMs);
    this.#windowEndsMs ??= nowMs + this.#entry.windowMs;
    this.#left = Math.max(0, Math.min(this.#entry.capacity, before - amount));
    return before - this.#left;
  }
}

interface Taken {
  readonly bucket: Bucket;
  readonly entry: Entry;
  readonly amount: number;
}

class Model {
  readonly buckets = new Map<Entry, Map<string, Bucket>>(ENTRIES.map((entry) => [entry, new Map()]));

  /** What an admitted request took, or undefined if it is rejected. */
  admit(request: Request, nowMs: number): Taken[] | undefined {
    const taken: Taken[] = [];
    for (const stage of STAGES) {
      if (stage === "call" && request.estimate === undefined) continue;
      if (stage === "body" && request.refuser === "rule") return this.#giveBack(taken, nowMs);
      const asked = ENTRIES.filter((entry) => entry.stage === stage).map((entry) => {
        const reserved = entry.config.reserveOutput === true;
        const amount = stage === "call" ? (request.estimate ?? 0) + (reserved ? request.maximum : 0) : 1;
        return { entry, amount, needed: reserved ? amount : 1, bucket: this.bucket(entry, entry.key(request)) };
      });
      if (asked.some(({ bucket, needed }) => bucket.left(nowMs) < needed)) return this.#giveBack(taken, nowMs);
      for (const { entry, bucket, amount } of asked) taken.push({ entry, bucket, amount: bucket.take(amount, nowMs) });
      if (request.refuser === stage) return this.#giveBack(taken, nowMs);
    }
    return taken;
  }

  bucket(entry: Entry, key: string): Bucket {
    const held = this.buckets.get(entry) as Map<string, Bucket>;
    const bucket = held.get(key) ?? new Bucket(entry);
    held.set(key, bucket);
    return bucket;
  }

  #giveBack(taken: readonly Taken[], nowMs: number): undefined {
    for (const { bucket, amount } of taken) bucket.take(-amount, nowMs);
    return undefined;
  }
}

test("every bucket matches the model, whatever rejects a request and however calls end", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { maxLength: 60 }), async (commands) => {
      const envs = [limitEnv("gateway test"), limitEnv("route test")] as const;
      const scopes = envs.map((env, scope) =>
        rateLimit.compile(
          rateLimit.schema.parse({
            local: ENTRIES.filter((entry) => entry.scope === scope).map(({ config }) => config),
          }),
          env.env,
        ),
      );
      const model = new Model();
      const open: { exchange: Exchange; taken: Taken[] }[] = [];
      let nowMs = 0;
      for (const step of commands) {
        if (step.kind === "wait") {
          nowMs += step.ms;
          for (const env of envs) env.advance(step.ms);
        } else if (step.kind === "request") {
          const expected = model.admit(step, nowMs);
          const exchange = exchangeOf(step);
          assert.equal(await passes(scopes, exchange, step.refuser), expected !== undefined);
          if (expected !== undefined && step.estimate !== undefined) open.push({ exchange, taken: expected });
        } else {
          const [call] = open.splice(step.which % Math.max(1, open.length), 1);
          if (call === undefined) continue;
          const used = end(scopes, call.exchange, step.how, step.used);
          for (const { entry, bucket, amount } of call.taken)
            if (used !== undefined && entry.stage === "call") bucket.take(used - amount, nowMs);
        }
        for (const [entry, held] of model.buckets) {
          for (const [key, bucket] of held)
            assert.equal(
              remaining(envs[entry.scope].views(), entry, key),
              bucket.left(nowMs),
              JSON.stringify(entry.config),
            );
        }
      }
    }),
    { numRuns: 150 },
  );
});

function exchangeOf({ user, tool, estimate, maximum }: Request): Exchange {
  return limitExchange({
    jwt: { sub: user },
    ...(tool === "" ? {} : { mcp: { tool: { name: tool, target: "t" } } }),
    ...(estimate === undefined ? {} : { llm: { estimatedTokens: estimate, maxOutputTokens: maximum } }),
  });
}

/** The pipeline's order: limits that need only the head, rules about the body, then the other limits. */
async function passes(scopes: readonly Hooks[], exchange: Exchange, refuser: Refuser): Promise<boolean> {
  const limits = scopes.map((hooks): CompiledPolicy => ({ phase: "route", kind: "rateLimit", hooks }));
  const other: CompiledPolicy = { phase: "backend", kind: "other", hooks: refusing(refuser) };
  try {
    for (const stage of STAGES) {
      if (stage === "call" && exchange.attributes.llm === undefined) continue;
      if (stage === "body") await run(exchange, (hookRun, done) => runBodyHooks(hookRun, [other]) && done());
      const policies = [...limits, other].filter(({ hooks }) => hooks.admit?.[stage] !== undefined);
      await run(exchange, (hookRun, done) => runAdmission(hookRun, stage, policies, done));
    }
    return true;
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error));
    return false;
  }
}

function run(exchange: Exchange, action: (run: HookRun, done: () => void) => void): Promise<void> {
  return new Promise((resolve, reject) =>
    action({ exchange, clock: fakeClock(), redaction: createRedaction(), isDry: false, fail: reject }, resolve),
  );
}

function refusing(refuser: Refuser): Hooks {
  const refusal = new GatewayError("authorization_denied");
  if (refuser === "none") return {};
  if (refuser === "rule")
    return {
      access: {
        body() {
          throw refusal;
        },
      },
    };
  const charge: Charge = {
    take: () => undefined,
    giveBack: () => undefined,
    confirm: () => Promise.reject(refusal),
  };
  return { admit: { [refuser]: () => charge } };
}

/** The final charge of the call; undefined if the admitted charge stays. */
function end(scopes: readonly Hooks[], exchange: Exchange, how: End, used: number): number | undefined {
  const outcome: Outcome =
    how === "refused"
      ? { status: 400, end: "complete", responseBytes: 1 }
      : how === "timeout"
        ? { status: 504, end: "complete", responseBytes: 1 }
        : { status: 200, end: how === "left" ? "aborted" : "complete", responseBytes: 1 };
  const input = exchange.attributes.llm?.estimatedTokens ?? 0;
  if (how === "usage") Object.assign(exchange.attributes.llm ?? {}, { inputTokens: used, outputTokens: 7 });
  if (how === "left") Object.assign(exchange.attributes.llm ?? {}, { inputTokens: input, outputTokens: used });
  settleAll(scopes, exchange, outcome);
  return { usage: used + 7, left: input + used, refused: 0, timeout: undefined, silent: undefined }[how];
}

function remaining(
  views: ReturnType<ReturnType<typeof limitEnv>["views"]>,
  entry: Entry,
  key: string,
): number | undefined {
  const view = views.find(({ rule }) => JSON.stringify(rule) === JSON.stringify(entry.config));
  const shown = entry.config.key === undefined ? "(all)" : key === "" ? "(no key)" : key;
  return view?.buckets.find((bucket) => bucket.key === shown)?.remaining ?? entry.capacity;
}
