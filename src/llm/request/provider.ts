/**
 * The description of an LLM provider: data and pure functions, without I/O or state. A format that is absent is not
 * supported. Differences between providers belong in their own files, not in shared code. Also reads the response
 * headers that providers share: `retry-after` (RFC 9110 section 10.2.3, or OpenAI's `retry-after-ms`) and request ids.
 */
import { ExpectedError } from "../../base/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathSegment } from "../../http/request-path.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "./dialect.ts";

/** How a provider expects its key. */
export type CredentialForm = "bearer" | "x-api-key" | "api-key" | "x-goog-api-key" | "aws";

export interface UpstreamCall {
  /** The format of the provider's request. */
  readonly format: Format;
  /** The client's path after the base path. */
  readonly suffix: string;
  readonly model: string;
  readonly stream: boolean;
  /** The request counts tokens instead of generating. */
  readonly counts: boolean;
  /** The client's query, for requests that are forwarded unchanged. */
  readonly query: string;
}

/** The variations of the chat dialect between servers. */
export interface ChatHabits {
  /** The parameter that limits the output. */
  readonly maxTokens: "max_tokens" | "max_completion_tokens";
  /** Whether the server supports `top_k`, which OpenAI does not. */
  readonly topK: boolean;
  /** Whether the server supports `user`. */
  readonly user: boolean;
  /** The server's name for `seed`. */
  readonly seed: "seed" | "random_seed";
  /** The `tool_choice` value that requires a tool call. */
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
  /** The name in telemetry (`gen_ai.provider.name`) and in price catalogues. */
  readonly name: string;
  /** Scheme and authority. */
  readonly origin: string;
  /** The base path of the API, for example `/v1`. */
  readonly basePath: string;
  readonly credential: CredentialForm;
  /** Default headers, unless the client sets them. */
  readonly headers: Readonly<Record<string, string>>;
  /** The provider's format for a request in the client's format; undefined if unsupported. */
  upstreamFormat(client: Format, model: string): Format | undefined;
  /** Path and query below `basePath`. */
  path(call: UpstreamCall, basePath: string): string;
  /** Whether the body names the model; otherwise the path does. */
  readonly modelInBody: boolean;
  /** Whether usage in chat streams must be requested. */
  readonly asksForStreamUsage: boolean;
  /** The chat variation for translated requests. */
  readonly chat: ChatHabits;
  /** The path names the model even for multipart forms, so forms must be read. */
  readonly readsForms?: true;
  /** Whether the provider supports WebSocket at the client's path. */
  upgrades?(path: string): boolean;
  /** Changes that the provider requires in a native body. */
  adaptBody?(body: Members, call: UpstreamCall): Members;
  needsAdapting?(call: Pick<UpstreamCall, "format">): boolean;
}

/** A model name that is not valid in a path. */
export class ModelNameError extends ExpectedError {
  constructor() {
    super("the model's name cannot be part of the provider's path");
    this.name = "ModelNameError";
  }
}

/** Encodes a model's name as one path segment. */
export function modelSegment(model: string): string {
  const segment = pathSegment(model);
  if (segment === undefined) throw new ModelNameError();
  return segment;
}

export function withQuery(path: string, query: string): string {
  return query === "" ? path : `${path}?${query}`;
}

/** `nowMs` is wall-clock time. Undefined if the headers are absent, invalid or in the past. */
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
/** Restricts the id, because it is written to log lines. */
const FORM = /^[\w.:/+=-]{1,128}$/;

export function providerRequestId(headers: HeaderList): string | undefined {
  for (const name of NAMES) {
    const value = headers.get(name);
    if (value !== undefined && FORM.test(value)) return value;
  }
  return undefined;
}
