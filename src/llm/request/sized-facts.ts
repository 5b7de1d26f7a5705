/**
 * The facts of a request that a token limit counts although it is no LLM call that can be read: forms, uploads,
 * encoded or ambiguous bodies. It is charged by its size: what it announces, then what of it went through. Nothing
 * is held for it.
 */
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import { observeChunks } from "../../http/body.ts";
import { bytesPerToken } from "../usage/estimate-size.ts";
import { LlmRequestFacts } from "./llm-facts.ts";

const NO_BYTES = Buffer.alloc(0);
const NO_MODELS: readonly string[] = [];

/** Notes the facts, unless an earlier attempt has. `models`: what the address or a form names, the request's model first. */
export function noteSizedRequest(exchange: Exchange, models: readonly string[] = NO_MODELS): LlmFacts {
  const facts = exchange.facts.llm ?? sizedFacts(exchange.request, models);
  exchange.facts.llm = facts;
  return facts;
}

/** Of what is only stored: it needs a budget that is not used up, and costs nothing. */
export function noteFreeRequest(exchange: Exchange, models: readonly string[] = NO_MODELS): void {
  if (exchange.facts.llm !== undefined) return;
  const facts = new LlmRequestFacts(models[0], false, NO_BYTES, undefined, models);
  facts.makeFree();
  exchange.facts.llm = facts;
}

function sizedFacts(request: GatewayRequest, models: readonly string[]): LlmFacts {
  const { body } = request;
  const perToken = bytesPerToken(request);
  const facts = new LlmRequestFacts(models[0], false, NO_BYTES, undefined, models);
  const announced = body.kind === "bytes" ? body.bytes.length : body.kind === "stream" ? (body.length ?? 0) : 0;
  facts.estimatedTokens = Math.ceil(announced / perToken);
  if (body.kind === "stream") {
    let passed = 0;
    observeChunks(body.stream, (chunk) => {
      passed += chunk.length;
      facts.estimatedTokens = Math.ceil(passed / perToken);
    });
  }
  return facts;
}
