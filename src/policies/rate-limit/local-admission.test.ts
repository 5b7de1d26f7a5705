import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { limitEnv, limitExchange, request, settleAll } from "../../../test/support/rate-limit-service/limit-env.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Hooks } from "../../core/policy.ts";
import type { RequestAttributes } from "../../core/request-attributes.ts";
import { BucketStore } from "./bucket-store.ts";
import { LocalCharge, type LocalLimit } from "./local-limit.ts";
import { rateLimit } from "./policy.ts";

test("a settlement after an eviction charges the full amount to the new bucket", () => {
  const store = new BucketStore({ capacity: 100, refill: 100, windowMs: 60_000 }, 1);
  const limit: LocalLimit = {
    type: "tokens",
    store,
    needsBody: false,
    readsModel: false,
    isShadow: false,
    rule: "",
    reservesOutput: false,
    capacityText: "10",
    text: "",
    keyOf: () => "a",
    show: String,
    countRejection: () => undefined,
  };
  let nowMs = 0;
  const charge = new LocalCharge([limit], ["a"], { charged: 10, reserved: 0 }, limitExchange(), nowMs, () => nowMs);
  charge.take();
  store.take(store.open("b", 1), 1);
  nowMs = 2;
  charge.settle(70);
  assert.equal(store.remaining(store.find("a", 2)), 30);
});

type Command =
  | { readonly kind: "request"; readonly user: string }
  | { readonly kind: "call"; readonly user: string; readonly estimate: number }
  | { readonly kind: "finish"; readonly used: number }
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "reload" };

const user = fc.constantFrom("alice", "bob", "");
const command: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constant("request" as const), user }),
  fc.record({ kind: fc.constant("call" as const), user, estimate: fc.integer({ min: 1, max: 40 }) }),
  fc.record({ kind: fc.constant("finish" as const), used: fc.integer({ min: 0, max: 150 }) }),
  fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 300, 999, 1000, 2500, 60_000) }),
  fc.record({ kind: fc.constant("reload" as const) }),
);

/** A reference model: one limit per key, refilled window by window. */
class Budget {
  readonly #capacity: number;
  readonly #refill: number;
  readonly #windowMs: number;
  #left: number;
  #windowEndsMs: number | undefined;

  constructor(capacity: number, refill: number, windowMs: number) {
    this.#capacity = capacity;
    this.#refill = refill;
    this.#windowMs = windowMs;
    this.#left = capacity;
  }

  left(nowMs: number): number {
    while (this.#windowEndsMs !== undefined && this.#windowEndsMs <= nowMs) {
      this.#left = Math.min(this.#capacity, this.#left + this.#refill);
      this.#windowEndsMs += this.#windowMs;
    }
    return this.#left;
  }

  charge(amount: number, nowMs: number): number {
    const before = this.left(nowMs);
    this.#windowEndsMs ??= nowMs + this.#windowMs;
    this.#left = Math.max(0, Math.min(this.#capacity, before - amount));
    return before - this.#left;
  }
}

test("over any sequence of requests, calls, settlements, clock jumps and reloads, the policy admits what the model admits", async () => {
  const local = [
    { requests: 3, burst: 2, unit: "Seconds", key: "jwt.sub" },
    { tokens: 100, unit: "Minutes", key: "jwt.sub" },
    { tokens: 150, unit: "Minutes" },
  ];
  await fc.assert(
    fc.asyncProperty(fc.array(command, { maxLength: 80 }), async (commands) => {
      const env = limitEnv();
      const compile = (): Hooks[] => [rateLimit.compile(rateLimit.schema.parse({ local }), env.env)];
      let scopes = compile();
      let nowMs = 0;
      const perUser = new Map<string, { requests: Budget; tokens: Budget }>();
      const ceiling = new Budget(150, 150, 60_000);
      const open: { scopes: Hooks[]; exchange: Exchange; settle(used: number): void }[] = [];

      const budgets = (name: string) => {
        const known = perUser.get(name) ?? { requests: new Budget(5, 3, 1000), tokens: new Budget(100, 100, 60_000) };
        perUser.set(name, known);
        return known;
      };
      const attempt = async (exchange: Exchange): Promise<boolean> =>
        request(scopes, exchange).then(
          () => true,
          () => false,
        );
      const attributes = (name: string): RequestAttributes => ({ jwt: { sub: name } });

      for (const step of commands) {
        if (step.kind === "wait") {
          nowMs += step.ms;
          env.advance(step.ms);
        } else if (step.kind === "reload") {
          env.reload(() => {
            scopes = compile();
          });
        } else if (step.kind === "finish") {
          open.shift()?.settle(step.used);
        } else {
          const { requests, tokens } = budgets(step.user);
          const isCall = step.kind === "call";
          const exchange = limitExchange({
            ...attributes(step.user),
            ...(isCall ? { llm: { estimatedTokens: step.estimate } } : {}),
          });
          const passesRequests = requests.left(nowMs) >= 1;
          const expected = passesRequests && (!isCall || (tokens.left(nowMs) >= 1 && ceiling.left(nowMs) >= 1));
          // A request that a token limit rejects is not charged, but its first use starts the window.
          if (passesRequests) requests.charge(expected ? 1 : 0, nowMs);
          assert.equal(await attempt(exchange), expected);
          if (!expected || !isCall) continue;
          const taken = [tokens.charge(step.estimate, nowMs), ceiling.charge(step.estimate, nowMs)] as const;
          const admittedBy = scopes;
          open.push({
            scopes: admittedBy,
            exchange,
            settle(used) {
              Object.assign(exchange.attributes.llm ?? {}, { inputTokens: used, outputTokens: 0 });
              settleAll(admittedBy, exchange);
              tokens.charge(used - taken[0], nowMs);
              ceiling.charge(used - taken[1], nowMs);
            },
          });
        }
      }
    }),
    { numRuns: 200 },
  );
});
