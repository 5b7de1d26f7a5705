/**
 * What the gateway must know of an LLM provider: data and pure functions, no I/O and no state. A format that is
 * absent cannot be asked for; everything that differs between providers stands in their files, not in shared code.
 */
import { ExpectedError } from "../../base/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathSegment } from "../../http/request-path.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "./dialect.ts";

/** Where a provider wants its key. */
export type CredentialForm = "bearer" | "x-api-key" | "api-key" | "x-goog-api-key" | "aws";

export interface UpstreamCall {
  /** In which the provider is asked. */
  readonly format: Format;
  /** What follows the base path in the client's request; its own path for formats that pass as they are. */
  readonly suffix: string;
  readonly model: string;
  readonly stream: boolean;
  /** It counts tokens instead of generating. */
  readonly counts: boolean;
  /** The client's query, for requests that pass as they are. */
  readonly query: string;
}

/** In which members servers of the chat dialect differ. */
export interface ChatHabits {
  /** The member that limits the output. */
  readonly maxTokens: "max_tokens" | "max_completion_tokens";
  /** Whether it takes `top_k`, which OpenAI does not have. */
  readonly topK: boolean;
  /** Whether it takes `user`. */
  readonly user: boolean;
  /** Its name of `seed`. */
  readonly seed: "seed" | "random_seed";
  /** Its word for "some tool must be called". */
  readonly required: "required" | "any";
}

export const CHAT_HABITS: ChatHabits = {
  maxTokens: "max_tokens",
  topK: true,
  user: true,
  seed: "seed",
  required: "required",
};

export interface Provider {
  /** As in telemetry (`gen_ai.provider.name`) and in price catalogues. */
  readonly name: string;
  /** Scheme and authority. */
  readonly origin: string;
  /** Where its API begins, for example `/v1`. */
  readonly basePath: string;
  readonly credential: CredentialForm;
  /** Sent with every request, unless the client said otherwise. */
  readonly headers: Readonly<Record<string, string>>;
  /** The format in which it can be asked for what a client wrote in another; undefined if it cannot. */
  upstreamFormat(client: Format, model: string): Format | undefined;
  /** Path and query below `basePath`. */
  path(call: UpstreamCall, basePath: string): string;
  /** Whether the model is named in the body (otherwise the path names it). */
  readonly modelInBody: boolean;
  /** Chat streams carry usage only if they are asked to. */
  readonly asksForStreamUsage: boolean;
  /** How it wants a chat request that we wrote. */
  readonly chat: ChatHabits;
  /** Its paths name the model also of forms with files, which must be read for it. */
  readonly readsForms?: true;
  /** Whether it speaks WebSocket at this path of a client. */
  upgrades?(path: string): boolean;
  /** What the provider needs changed in a native body. */
  adaptBody?(body: Members, call: UpstreamCall): Members;
  needsAdapting?(call: Pick<UpstreamCall, "format">): boolean;
}

/** A model's name that cannot stand in a path: what the client is told. */
export class ModelNameError extends ExpectedError {
  constructor() {
    super("the model's name cannot be part of the provider's path");
    this.name = "ModelNameError";
  }
}

/** A model's name as one segment of a path. */
export function modelSegment(model: string): string {
  const segment = pathSegment(model);
  if (segment === undefined) throw new ModelNameError();
  return segment;
}

export function withQuery(path: string, query: string): string {
  return query === "" ? path : `${path}?${query}`;
}

/** `nowMs`: of the wall clock. Undefined if nothing sensible is said, or only the past. */
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
/** It goes into log lines. */
const FORM = /^[\w.:/+=-]{1,128}$/;

export function providerRequestId(headers: HeaderList): string | undefined {
  for (const name of NAMES) {
    const value = headers.get(name);
    if (value !== undefined && FORM.test(value)) return value;
  }
  return undefined;
}
