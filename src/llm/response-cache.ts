/**
 * Caches complete, successful responses of LLM calls. With the scope `user`, entries are separate per user.
 */

import { createHash } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { isEncoded } from "../base/decompress.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { BackendEnv, BackendProblem, BackendRun, ResponseReceiver } from "../core/backend.ts";
import { DeferredRun } from "../core/deferred-run.ts";
import type { Exchange } from "../core/exchange.ts";
import { ResponseFilter } from "../core/response-filter.ts";
import { HeaderList } from "../http/headers.ts";
import { readJson } from "../json/read-json.ts";
import { CACHE_NAMESPACE } from "../store/store.ts";
import type { Candidate } from "./models/model-table.ts";
import type { Format } from "./request/dialect.ts";
import type { LlmCall } from "./request/llm-call.ts";
import type { GuardedReceiver, ResponseGuards } from "./response-guards.ts";
import type { Settlement } from "./settlement.ts";
import { isForwarded, withoutKey } from "./upstream-request.ts";

const CACHED_RESPONSE = peerInput("store/cached-response");

interface CacheConfig {
  readonly ttl: number;
  readonly scope: "user" | "shared";
}

interface CachedCall extends Omit<CacheKeyInput, "scope" | "backend"> {
  readonly settlement: Settlement;
  callProviders(receiver: ResponseReceiver): BackendRun;
  /** Cached responses pass through the response guards too. */
  readonly guards: ResponseGuards;
}

export interface ResponseCache {
  run(exchange: Exchange, call: ResponseReceiver, cached: CachedCall): BackendRun;
}

const HEADER = "x-gateway-cache";
/** Replayed responses are written in chunks to respect backpressure. */
const REPLAY_CHUNK_BYTES = 16 * 1024;

/**
 * `backend` is the serialized configuration of the backend. It is part of the key, so a change to it invalidates all
 * entries of the backend.
 */
export function createResponseCache({ ttl, scope }: CacheConfig, backend: string, env: BackendEnv): ResponseCache {
  const store = env.store.at(CACHE_NAMESPACE);
  const { clock, metrics } = env;
  const outcomes = metrics.counter("gateway_llm_cache_total", "LLM calls by what the response cache did.", ["outcome"]);
  const savedTokens = metrics.counter("gateway_llm_cache_saved_tokens_total", "Tokens that replayed answers had cost.");
  const savedDollars = metrics.counter(
    "gateway_llm_cache_saved_usd_total",
    "US dollars that replayed answers had cost.",
  );

  function save(
    key: string,
    response: Pick<CachedResponse, "headers" | "body" | "isBase64">,
    exchange: Exchange,
  ): void {
    const { inputTokens = 0, outputTokens = 0, cost = 0 } = exchange.attributes.llm ?? {};
    const keptAtMs = clock.now();
    const entry: CachedResponse = { ...response, keptAtMs, tokens: inputTokens + outputTokens, cost };
    store.set(key, JSON.stringify(entry), { expiresAtMs: keptAtMs + ttl }).catch(() => undefined);
  }

  return {
    run(exchange, call, cached) {
      const cacheControl = exchange.request.headers.get("cache-control") ?? "";
      const key = /\bno-store\b/i.test(cacheControl) ? undefined : cacheKey({ ...cached, backend, scope }, exchange);
      if (key === undefined) {
        outcomes.labels("bypass").add();
        return cached.callProviders(new CachingResponse(call, "bypass"));
      }
      const callProviders = (): BackendRun => {
        // Compressed responses are not cached.
        exchange.request.headers.set("accept-encoding", "identity");
        outcomes.labels("miss").add();
        return cached.callProviders(
          new CachingResponse(call, "miss", {
            hold: (bytes) => exchange.holdResponse(bytes),
            save: (response) => save(key, response, exchange),
          }),
        );
      };
      if (/\bno-cache\b/i.test(cacheControl)) return callProviders();
      const replay = (entry: CachedResponse, body: Buffer): BackendRun => {
        outcomes.labels("hit").add();
        savedTokens.labels().add(entry.tokens);
        savedDollars.labels().add(entry.cost);
        cached.settlement.replayed();
        exchange.trace?.point({ type: "policyEvent", kind: "llmCache", details: { outcome: "hit" } });
        return new ReplayedResponse(cached.guards(call), entry, body, clock);
      };
      const lookup = store
        .get(key)
        .catch(() => undefined)
        .then((text) => {
          const entry = text === undefined ? undefined : parseCached(text);
          // A future timestamp was written with a different clock, so the age of the entry is unknown.
          const isOver = entry === undefined || entry.keptAtMs > clock.now() || entry.keptAtMs + ttl <= clock.now();
          if (isOver) return callProviders;
          const body = decodeBody(entry);
          // A client that reads slowly keeps its copy of the body in memory.
          return exchange.holdResponse(body.length + CHUNK_BYTES) ? () => replay(entry, body) : callProviders;
        });
      return new DeferredRun(call, lookup, () => cached.settlement.unused("aborted"));
    },
  };
}

class ReplayedResponse implements BackendRun {
  readonly #call: ResponseReceiver;
  readonly #body: Buffer;
  #sent = 0;
  #isOver = false;

  constructor(
    { receiver: call, setUpstream }: GuardedReceiver,
    entry: Omit<CachedResponse, "body">,
    body: Buffer,
    clock: Clock,
  ) {
    this.#call = call;
    setUpstream(this);
    this.#body = body;
    const headers = new HeaderList();
    for (let i = 0; i + 1 < entry.headers.length; i += 2)
      headers.set(entry.headers[i] as string, entry.headers[i + 1] as string);
    headers.set(HEADER, "hit");
    headers.set("age", String(Math.max(0, Math.floor((clock.now() - entry.keptAtMs) / 1000))));
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
      const chunk = this.#body.subarray(this.#sent, this.#sent + REPLAY_CHUNK_BYTES);
      this.#sent += chunk.length;
      if (!this.#call.data(chunk)) return;
    }
  }
}

/** Requests in other formats may create objects at the provider, so their responses are not cached. */
const CACHED_FORMATS: ReadonlySet<Format> = new Set([
  ...(["chat", "messages", "responses", "generateContent", "converse", "embeddings"] as const),
]);

/** These headers do not select an account or change the response, so they are not part of the key. */
const IRRELEVANT_HEADERS: ReadonlySet<string> = new Set([
  ...["cache-control", "content-type", "date", "dnt", "idempotency-key", "pragma", "priority", "user-agent", "via"],
  ...["b3", "request-id", "sentry-trace", "traceparent", "tracestate", "x-amzn-trace-id", "x-client-request-id"],
  ...["x-cloud-trace-context", "x-correlation-id", "x-goog-api-client", "x-ms-client-request-id", "x-request-id"],
]);
const IRRELEVANT_PREFIX = /^(?:x-stainless-|x-b3-|x-datadog-|sec-fetch-|sec-ch-)/;

const KEY_HEADERS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

interface CacheKeyInput {
  readonly backend: string;
  readonly scope: "user" | "shared";
  readonly model: string | undefined;
  readonly llm: LlmCall;
  readonly candidates: readonly Candidate[];
}

/** Returns undefined if the response must not be cached. */
function cacheKey(input: CacheKeyInput, exchange: Exchange): string | undefined {
  const { llm, scope, candidates } = input;
  const { request } = exchange;
  if (llm.dialect.operation === "count" || !CACHED_FORMATS.has(llm.dialect.format)) return undefined;
  const owner = cacheOwner(exchange, scope, candidates);
  if (owner === undefined) return undefined;
  const hash = createHash("sha256");
  // The length prefix prevents different lists of parts from being joined to the same bytes.
  const add = (part: string | Buffer): void => {
    hash.update(`${Buffer.byteLength(part)}:`);
    hash.update(part);
  };
  for (const part of [input.backend, owner, request.path, withoutKey(request.query), input.model ?? ""]) add(part);
  // The candidates can depend on conditions over headers and identity, not only on the request body.
  add(
    candidates
      .map(({ target, model }) => `${target.name} ${model}`)
      .sort()
      .join("\n"),
  );
  const isReplaced = candidates.every(({ target }) => target.credential.kind !== "client");
  for (const name of [...request.headers.names()].sort()) {
    if (!isForwarded(name, isReplaced) || IRRELEVANT_HEADERS.has(name) || IRRELEVANT_PREFIX.test(name)) continue;
    add(name);
    add(JSON.stringify(request.headers.getAll(name)));
  }
  add(llm.bytes);
  return hash.digest("base64url");
}

function cacheOwner(
  { identity: { principal }, request, credentials: { presented: credential } }: Exchange,
  scope: CacheKeyInput["scope"],
  candidates: readonly Candidate[],
): string | undefined {
  // Only the provider can verify a key from the client, so entries are separate per key.
  const clientKeys = candidates.some(({ target }) => target.credential.kind === "client")
    ? [...KEY_HEADERS.map((name) => request.headers.get(name)), credential?.value, keyParameter(request.query)]
    : [];
  const own = clientKeys.some((value) => value !== undefined) ? `key ${JSON.stringify(clientKeys)}` : undefined;
  if (scope === "shared") return own ?? "shared";
  if (principal === undefined) return own;
  return `user ${principal} ${own ?? ""}`;
}

function keyParameter(query: string): string | undefined {
  return query.split("&").find((part) => part.startsWith("key="));
}

const MAX_KEPT_BYTES = 512 * 1024;
/** A buffered chunk has about this much memory overhead. */
const CHUNK_BYTES = 128;
/** Other response headers are not stored, because they describe a single provider call. */
const KEPT_HEADERS = ["content-type", "x-gateway-dropped"];
const ERROR_EVENT = /^(?:event: ?(?:error|response\.failed)|data: ?\{"(?:error|type": ?"error)")/m;

const schema = z.strictObject({
  headers: z.array(z.string()),
  body: z.string(),
  isBase64: z.boolean(),
  keptAtMs: z.number(),
  tokens: z.number(),
  cost: z.number(),
});

type CachedResponse = z.output<typeof schema>;

export function parseCached(text: string): CachedResponse | undefined {
  try {
    return schema.parse(readJson(CACHED_RESPONSE, text));
  } catch {
    return undefined;
  }
}

function decodeBody({ body, isBase64 }: CachedResponse): Buffer {
  return Buffer.from(body, isBase64 ? "base64" : "utf8");
}

interface CacheSink {
  /** Returns false if the memory budget does not allow `bytes` more bytes. */
  hold(bytes: number): boolean;
  save(response: Pick<CachedResponse, "headers" | "body" | "isBase64">): void;
}

class CachingResponse extends ResponseFilter {
  readonly #outcome: "miss" | "bypass";
  readonly #sink: CacheSink | undefined;
  #headers: string[] | undefined;
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** If `sink` is omitted, the response is not stored, and only the `x-gateway-cache` header is set. */
  constructor(call: ResponseReceiver, outcome: "miss" | "bypass", sink?: CacheSink) {
    super(call);
    this.#outcome = outcome;
    this.#sink = sink;
  }

  head(status: number, headers: HeaderList): void {
    if (this.#sink !== undefined && status === 200 && !isEncoded(headers.get("content-encoding")))
      this.#headers = KEPT_HEADERS.flatMap((name) => {
        const value = headers.get(name);
        return value === undefined ? [] : [name, value];
      });
    headers.set("x-gateway-cache", this.#outcome);
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    if (this.#headers !== undefined) {
      this.#bytes += chunk.length;
      if (this.#bytes <= MAX_KEPT_BYTES && this.#sink?.hold(chunk.length + CHUNK_BYTES) === true)
        this.#chunks.push(chunk);
      else this.#forget();
    }
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    const headers = this.#headers;
    if (headers !== undefined) {
      const bytes = Buffer.concat(this.#chunks);
      const text = bytes.toString("utf8");
      const isBase64 = !Buffer.from(text).equals(bytes);
      if (bytes.length > 0 && !ERROR_EVENT.test(text))
        this.#sink?.save({ headers, body: isBase64 ? bytes.toString("base64") : text, isBase64 });
      this.#forget();
    }
    this.call.end(trailers);
  }

  override problem(problem: BackendProblem): void {
    this.#forget();
    this.call.problem(problem);
  }

  fail(error: unknown): void {
    this.#forget();
    this.call.fail(error);
  }

  #forget(): void {
    this.#headers = undefined;
    this.#chunks = [];
  }
}
