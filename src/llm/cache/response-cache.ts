/**
 * Answers of LLM calls kept in the store: exactly the same request gets the same answer again, as a stream if it was one,
 * for the same user unless the operator shares them. A store that is away means that the provider is asked.
 */

import type { Clock } from "../../base/clock.ts";
import type { BackendCall, BackendEnv, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { CACHE_NAMESPACE, storeNamespace } from "../../store/store.ts";
import { DeferredRun } from "../calls/deferred-run.ts";
import type { GuardedWay } from "../calls/guard-answers.ts";
import type { Settlement } from "../calls/settlement.ts";
import { type CacheQuestion, cacheKey } from "./cache-key.ts";
import { bodyOf, KeepingCall, type KeptAnswer, parseKept } from "./kept-answer.ts";

export interface CacheConfig {
  readonly ttl: number;
  readonly scope: "user" | "shared";
}

export interface CachedCall extends Omit<CacheQuestion, "scope" | "backend"> {
  readonly settlement: Settlement;
  /** Asks the providers. */
  ask(call: BackendCall): BackendRun;
  /** What a kept answer passes on its way to the client. */
  through(call: BackendCall): GuardedWay;
}

export interface ResponseCache {
  run(exchange: Exchange, call: BackendCall, cached: CachedCall): BackendRun;
}

const HEADER = "x-gateway-cache";
/** A stream goes out in pieces, so that a slow client holds up nothing. */
const PIECE_BYTES = 16 * 1024;

/** `backend`: its configuration, so that a change forgets what was kept. */
export function createResponseCache({ ttl, scope }: CacheConfig, backend: string, env: BackendEnv): ResponseCache {
  const store = storeNamespace(env.store, CACHE_NAMESPACE);
  const { clock, metrics } = env;
  const outcomes = metrics.counter("gateway_llm_cache_total", "LLM calls by what the response cache did.", ["outcome"]);
  const savedTokens = metrics.counter("gateway_llm_cache_saved_tokens_total", "Tokens that replayed answers had cost.");
  const savedDollars = metrics.counter(
    "gateway_llm_cache_saved_usd_total",
    "US dollars that replayed answers had cost.",
  );

  function keep(key: string, answer: Pick<KeptAnswer, "headers" | "body" | "isBase64">, exchange: Exchange): void {
    const { inputTokens = 0, outputTokens = 0, cost = 0 } = exchange.facts.llm ?? {};
    const keptAtMs = clock.now();
    const kept: KeptAnswer = { ...answer, keptAtMs, tokens: inputTokens + outputTokens, cost };
    // An answer that cannot be kept is asked for again.
    store.set(key, JSON.stringify(kept), { expiresAtMs: keptAtMs + ttl }).catch(() => undefined);
  }

  return {
    run(exchange, call, cached) {
      const wish = exchange.request.headers.get("cache-control") ?? "";
      const key = /\bno-store\b/i.test(wish) ? undefined : cacheKey({ ...cached, backend, scope }, exchange);
      if (key === undefined) {
        outcomes.labels("bypass").add();
        return cached.ask(new KeepingCall(call, "bypass"));
      }
      const ask = (): BackendRun => {
        // An encoded answer could not be told from another.
        exchange.request.headers.set("accept-encoding", "identity");
        outcomes.labels("miss").add();
        return cached.ask(
          new KeepingCall(call, "miss", {
            hold: (bytes) => exchange.holdResponse(bytes),
            keep: (answer) => keep(key, answer, exchange),
          }),
        );
      };
      if (/\bno-cache\b/i.test(wish)) return ask();
      const replay = (kept: KeptAnswer): BackendRun => {
        outcomes.labels("hit").add();
        savedTokens.labels().add(kept.tokens);
        savedDollars.labels().add(kept.cost);
        cached.settlement.replayed();
        exchange.trace?.point({ type: "policyEvent", kind: "llmCache", details: { outcome: "hit" } });
        return new ReplayRun(cached.through(call), kept, clock);
      };
      const looked = store
        .get(key)
        .catch(() => undefined)
        .then((text) => {
          const kept = text === undefined ? undefined : parseKept(text);
          // Of another time, before the clock or the configuration was changed.
          const isOver = kept === undefined || kept.keptAtMs > clock.now() || kept.keptAtMs + ttl <= clock.now();
          return isOver ? ask : () => replay(kept);
        });
      return new DeferredRun(call, looked, () => cached.settlement.nothing("aborted"));
    },
  };
}

class ReplayRun implements BackendRun {
  readonly #call: BackendCall;
  readonly #body: Buffer;
  #sent = 0;
  #isOver = false;

  constructor({ shown: call, from }: GuardedWay, kept: KeptAnswer, clock: Clock) {
    this.#call = call;
    from(this);
    this.#body = bodyOf(kept);
    const headers = new HeaderList();
    for (let i = 0; i + 1 < kept.headers.length; i += 2)
      headers.set(kept.headers[i] as string, kept.headers[i + 1] as string);
    headers.set(HEADER, "hit");
    headers.set("age", String(Math.max(0, Math.floor((clock.now() - kept.keptAtMs) / 1000))));
    if (headers.get("content-type")?.startsWith("text/event-stream") !== true)
      headers.set("content-length", String(this.#body.length));
    call.attempt("internal:cache");
    call.head(200, headers);
    this.resume();
  }

  abort(): void {
    this.#isOver = true;
  }

  resume(): void {
    while (!this.#isOver) {
      if (this.#sent >= this.#body.length) {
        this.#isOver = true;
        this.#call.end();
        return;
      }
      const piece = this.#body.subarray(this.#sent, this.#sent + PIECE_BYTES);
      this.#sent += piece.length;
      if (!this.#call.data(piece)) return;
    }
  }
}
