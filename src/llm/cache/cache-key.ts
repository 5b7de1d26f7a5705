/**
 * Under which key an answer is kept: everything that decides what the provider would say, and whose answer it is. A request
 * that nobody can be held to has no key where each user has entries of their own: a missing identity is never shared.
 */
import { createHash } from "node:crypto";
import type { Exchange } from "../../core/exchange.ts";
import { isForwarded } from "../calls/upstream-request.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Format } from "../request/dialect.ts";
import type { LlmCall } from "../request/llm-call.ts";

/** Calls of a model whose answer depends on the request alone. */
const CACHED_FORMATS: ReadonlySet<Format> = new Set([
  ...(["chat", "messages", "responses", "generateContent", "converse", "embeddings"] as const),
]);

/**
 * Headers that reach the provider and change nothing about its answer: they differ between calls of one client. Any other
 * header may choose an account, carry a credential or change the answer, so it is part of the key, whatever its name is.
 */
const IRRELEVANT_HEADERS: ReadonlySet<string> = new Set([
  ...["cache-control", "content-type", "date", "dnt", "idempotency-key", "pragma", "priority", "user-agent", "via"],
  ...["b3", "request-id", "sentry-trace", "traceparent", "tracestate", "x-amzn-trace-id", "x-client-request-id"],
  ...["x-cloud-trace-context", "x-correlation-id", "x-goog-api-client", "x-ms-client-request-id", "x-request-id"],
]);
const IRRELEVANT_PREFIX = /^(?:x-stainless-|x-b3-|x-datadog-|sec-fetch-|sec-ch-)/;

/** Where clients bring keys of their own. */
const KEY_HEADERS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

export interface CacheQuestion {
  readonly backend: string;
  readonly scope: "user" | "shared";
  readonly model: string | undefined;
  readonly llm: LlmCall;
  readonly candidates: readonly Candidate[];
}

/** undefined: this call is neither looked for nor kept. */
export function cacheKey(question: CacheQuestion, exchange: Exchange): string | undefined {
  const { llm, scope, candidates } = question;
  const { request } = exchange;
  if (llm.dialect.free || !CACHED_FORMATS.has(llm.dialect.format)) return undefined;
  const owner = ownerOf(exchange, scope, candidates);
  if (owner === undefined) return undefined;
  const hash = createHash("sha256");
  // Each part with its length: no two requests can be written alike.
  const add = (part: string | Buffer): void => {
    hash.update(`${Buffer.byteLength(part)}:`);
    hash.update(part);
  };
  for (const part of [question.backend, owner, request.path, withoutKeys(request.query), question.model ?? ""])
    add(part);
  // Who may answer can depend on more than the request: on conditions over its headers and its sender.
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

function ownerOf(
  { identity: { principal }, request, credentials: { presented: credential } }: Exchange,
  scope: CacheQuestion["scope"],
  candidates: readonly Candidate[],
): string | undefined {
  // Only the provider can check a key that the client brings: whoever has another one, or none, asks for himself.
  const brought = candidates.some(({ target }) => target.credential.kind === "client")
    ? [...KEY_HEADERS.map((name) => request.headers.get(name)), credential?.value, keyParameter(request.query)]
    : [];
  const own = brought.some((value) => value !== undefined) ? `key ${JSON.stringify(brought)}` : undefined;
  if (scope === "shared") return own ?? "shared";
  if (principal === undefined) return own;
  return `user ${principal} ${own ?? ""}`;
}

function keyParameter(query: string): string | undefined {
  return query.split("&").find((part) => part.startsWith("key="));
}

function withoutKeys(query: string): string {
  return query
    .split("&")
    .filter((part) => !part.startsWith("key="))
    .join("&");
}
