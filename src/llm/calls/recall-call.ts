/**
 * A recorded request walked again: its body is not known, but the model that it asked for and its counts are. They stand for
 * a call, so that aliases, overrides, policies of models and prices decide about it as they do about a real one.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { Quotes } from "../models/quotes.ts";
import { dialectOf } from "../request/dialect.ts";
import { LlmRequestFacts } from "../request/llm-facts.ts";
import { scanRequest } from "../request/read-request.ts";
import { isForm } from "./prepare-call.ts";

export function recallCall(exchange: Exchange, recorded: LlmFacts, quotes: Quotes | undefined): void {
  const { request } = exchange;
  const dialect = dialectOf(request.path);
  const { requestModel, maxOutputTokens } = recorded;
  // What is passed on unread has no call, see `prepareCall`.
  const isRead = request.method === "POST" && (requestModel !== undefined || dialect.format !== "opaque");
  const body = { model: dialect.pathModel === undefined ? requestModel : undefined, max_tokens: maxOutputTokens };
  const bytes = Buffer.from(JSON.stringify(body));
  const scanned = isRead ? scanRequest(bytes) : undefined;
  if (scanned?.ok !== true) {
    exchange.facts.llm = { ...recorded };
    return;
  }
  const model = dialect.pathModel ?? requestModel;
  const scan = isForm(request, dialect) ? { ...scanned.scan, isForm: true as const } : scanned.scan;
  const call = { dialect, bytes, scan, rules: [], quote: quotes?.(model) };
  const facts = new LlmRequestFacts(model, recorded.streaming ?? false, bytes, call);
  if (dialect.free) facts.makeFree();
  facts.estimatedTokens = recorded.estimatedTokens ?? 0;
  // What became of it: limits are settled with this.
  const { responseModel, provider, inputTokens, outputTokens, totalTokens } = recorded;
  if (responseModel !== undefined) facts.responseModel = responseModel;
  if (provider !== undefined) facts.provider = provider;
  if (inputTokens !== undefined) facts.inputTokens = inputTokens;
  if (outputTokens !== undefined) facts.outputTokens = outputTokens;
  if (totalTokens !== undefined) facts.totalTokens = totalTokens;
  exchange.facts.llm = facts;
}
