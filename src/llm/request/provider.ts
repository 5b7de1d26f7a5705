/**
 * Describes an LLM provider with data and pure functions.
 */
import { ExpectedError } from "../../base/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathSegment } from "../../http/request-path.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "./dialect.ts";

export type CredentialForm = "bearer" | "x-api-key" | "api-key" | "x-goog-api-key" | "aws";

export interface UpstreamCall {
  readonly format: Format;
  readonly suffix: string;
  readonly model: string;
  readonly stream: boolean;
  readonly counts: boolean;
  /** Only untranslated requests forward the client's query. */
  readonly query: string;
}

/** Describes how a server deviates from the chat dialect. */
export interface ChatVariant {
  readonly maxTokens: "max_tokens" | "max_completion_tokens";
  readonly topK: boolean;
  readonly user: boolean;
  readonly seed: "seed" | "random_seed";
  readonly required: "required" | "any";
}

export const STANDARD_CHAT: ChatVariant = {
  maxTokens: "max_tokens",
  topK: true,
  user: true,
  seed: "seed",
  required: "required",
};

export interface ModelListEndpoint {
  readonly path: string;
  readonly member: string;
  readonly id: string;
}

export interface Provider {
  /** True for servers with OpenAI's API that may lack its Responses API. */
  readonly mayLackResponses?: boolean;
  /** True for servers with OpenAI's API that may reject parts of a chat completion. */
  readonly mayLackFields?: boolean;
  /** Telemetry (`gen_ai.provider.name`) and price catalogs use this name. */
  readonly name: string;
  readonly origin: string;
  readonly basePath: string;
  readonly credential: CredentialForm;
  /** A header is omitted if the client sets it. */
  readonly headers: Readonly<Record<string, string>>;
  upstreamFormat(client: Format, model: string): Format | undefined;
  path(call: UpstreamCall, basePath: string): string;
  readonly modelInBody: boolean;
  readonly asksForStreamUsage: boolean;
  readonly chat: ChatVariant;
  /** Set if the provider lists its models below the base path. */
  readonly modelList?: ModelListEndpoint | undefined;
  /** Set if the path names the model of multipart forms too, so the gateway must parse them. */
  readonly readsForms?: true;
  upgrades?(path: string): boolean;
  adaptBody?(body: Members, call: UpstreamCall): Members;
  needsAdapting?(call: Pick<UpstreamCall, "format">): boolean;
}

export class ModelNameError extends ExpectedError {
  constructor() {
    super("the model's name cannot be part of the provider's path");
    this.name = "ModelNameError";
  }
}

export function modelSegment(model: string): string {
  const segment = pathSegment(model);
  if (segment === undefined) throw new ModelNameError();
  return segment;
}

export function withQuery(path: string, query: string): string {
  return query === "" ? path : `${path}?${query}`;
}

/** `nowMs` is wall-clock time. Returns undefined unless a header holds a positive delay or a future date. */
export function retryAfterSeconds(headers: HeaderList, nowMs: number): number | undefined {
  const fine = positive(Number(headers.get("retry-after-ms")) / 1000);
  if (fine !== undefined) return fine;
  const value = headers.get("retry-after");
  if (value === undefined) return undefined;
  if (/^\s*\d/.test(value)) return positive(Number(value));
  return positive((Date.parse(value) - nowMs) / 1000);
}

function positive(seconds: number): number | undefined {
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}

const NAMES = ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-goog-request-id"];
/** Log lines include the id, so only safe characters are allowed. */
const FORM = /^[\w.:/+=-]{1,128}$/;

export function providerRequestId(headers: HeaderList): string | undefined {
  for (const name of NAMES) {
    const value = headers.get(name);
    if (value !== undefined && FORM.test(value)) return value;
  }
  return undefined;
}
