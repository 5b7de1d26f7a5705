/**
 * Builds the request for a target. If the provider does not use the client's dialect, the request is translated.
 */
import { Readable } from "node:stream";
import { InputError, type PeerInput, peerInput } from "../base/peer-inputs.ts";
import { finish, type Steps } from "../base/sliced-work.ts";
import type { Exchange, GatewayRequest } from "../core/exchange.ts";
import type { SignedRequest } from "../core/signed-request.ts";
import {
  FORWARDING_HEADERS,
  includesHeader,
  MESSAGE_HEADERS,
  OVERRIDE_HEADERS,
  PROVIDER_CREDENTIAL_HEADERS,
} from "../http/header-rules.ts";
import { HeaderList } from "../http/headers.ts";
import type { OutgoingRequest } from "../http/http-client.ts";
import { isMembers, type Members } from "../json/json.ts";
import { spliceBytes } from "../json/json-scanner.ts";
import { tryReadJson } from "../json/read-json.ts";
import { type NoSkeleton, type Skeleton, skeletonSteps } from "../json/skeleton.ts";
import { type Edit, editAt } from "../json/syntax.ts";
import { parseBetas } from "./dialects/bedrock-provider.ts";
import { Losses, ToolNames, TranslationError, type Unsupported } from "./dialects/conversation.ts";
import { hasCacheMarks, markPrompt } from "./dialects/prompt-cache.ts";
import { translationBetween } from "./dialects/translate.ts";
import type { Translation, TranslationContext } from "./dialects/translation.ts";
import { addKey, clientKey } from "./models/credential.ts";
import type { Candidate } from "./models/model-table.ts";
import {
  type Feature,
  ModelNameError,
  type OmittedFeature,
  omittedFeatures,
  type UpstreamCall,
  withoutFeature,
} from "./models/providers.ts";
import type { Target } from "./models/target.ts";
import type { Format } from "./request/dialect.ts";
import type { LlmCall, PromptCaching } from "./request/llm-call.ts";
import { LlmRejection } from "./request/llm-errors.ts";
import { withoutCollection } from "./request/read-request.ts";

const OPTION = peerInput("client/llm-option");

export interface UpstreamPlan {
  readonly path: string;
  readonly body: readonly Buffer[];
  /** Holds the bodies of further calls if the request was split. `body` is the first. */
  readonly more: readonly (readonly Buffer[])[];
  readonly clientFormat: Format;
  /** Undefined if the provider uses the client's dialect. */
  readonly translation: Translation | undefined;
  readonly translatedTo: Format | undefined;
  readonly context: TranslationContext;
  /** `array` is the format of Google's streams without `alt=sse`. */
  readonly framing: "events" | "array";
  /** True if the gateway removes the usage from the stream because the client did not request it. */
  readonly hidesUsage: boolean;
  /** Features that the call uses, and that it can do without. */
  readonly features: readonly Feature[];
}

export interface PlanOptions {
  readonly tree: PeerInput<"JSON">;
  readonly unsupported: Unsupported;
  newId(): string;
  nowSeconds(): number;
}

const NO_LOSSES = new Losses("refuse");
const NO_TOOLS = new ToolNames();
const NO_MORE: UpstreamPlan["more"] = [];
const NO_BETAS: readonly string[] = [];

export function planRequest(
  llm: LlmCall,
  request: Pick<GatewayRequest, "query" | "headers">,
  { target, model }: Candidate,
  env: PlanOptions,
): UpstreamPlan {
  const { query } = request;
  const { provider } = target;
  const clientFormat = llm.dialect.format;
  const format = upstreamFormat(llm, target, model);
  // With another format or path, a request that runs no model could run as a billed call.
  const { operation } = llm.dialect;
  const wouldBeBilled =
    (operation === "count" || operation === "objects") &&
    (format !== clientFormat || target.pathOverride !== undefined);
  // A provider that reads the model from the body does not serve paths that name the model.
  const isForeignPath = clientFormat === "opaque" && llm.dialect.pathModel !== undefined && provider.modelInBody;
  if (format === undefined || wouldBeBilled || isForeignPath) throw unsupported(clientFormat, provider.name);
  const stream = llm.dialect.pathStream ?? llm.scan.stream ?? false;
  const isNative = format === clientFormat;
  const call: UpstreamCall = {
    format,
    suffix: isNative ? llm.dialect.suffix : translatedSuffix(format),
    model,
    stream,
    counts: operation === "count" && clientFormat !== "opaque",
    query: isNative ? withoutKey(query) : "",
  };
  const options = format === "chat" || clientFormat === "chat" ? parseStreamOptions(llm) : undefined;
  const asksForUsage =
    stream && format === "chat" && provider.asksForStreamUsage && !target.memory.rejectedFeatures.has("stream_options");
  const includeUsage = options?.include_usage === true;
  const context: TranslationContext = {
    model,
    stream,
    chat: provider.chat,
    losses: isNative ? NO_LOSSES : new Losses(env.unsupported),
    toolNames: isNative ? NO_TOOLS : new ToolNames(),
    betas: isNative ? NO_BETAS : parseBetas(request.headers.get("anthropic-beta")),
    newId: env.newId,
    createdSeconds: env.nowSeconds(),
    includeUsage,
  };
  const translation = isNative ? undefined : translationBetween(clientFormat, format);
  if (!isNative && translation === undefined) throw unsupported(clientFormat, provider.name);
  const used = fieldsThatMayLack(llm, target, format);
  const omitted = used.filter((feature) => target.memory.rejectedFeatures.has(feature));
  const kept = used.filter((feature) => !omitted.includes(feature));
  const isEdited = translation !== undefined || omitted.length > 0 || provider.needsAdapting?.(call) === true;
  const ownFeatures =
    asksForUsage && !(isNative && llm.scan.streamOptionsSpan !== undefined)
      ? STREAM_OPTIONS
      : format === "responses"
        ? replaceableFeatures(llm, target)
        : NO_FEATURES;
  const unmarkedBody = (): readonly Buffer[] => nativeBody(llm, call, options, asksForUsage, provider.modelInBody);
  const bodies = isEdited ? treeBodies(llm, call, translation, context, asksForUsage, omitted, target, env) : undefined;
  return {
    translatedTo: translation && format,
    path: target.pathOverride ?? upstreamPath(call, target),
    more: bodies && bodies.length > 1 ? bodies.slice(1) : NO_MORE,
    body:
      bodies?.[0] ??
      (llm.caching !== undefined && hasCacheMarks(format, model)
        ? (markedBody(llm, call, llm.caching, provider.modelInBody, env) ?? unmarkedBody())
        : unmarkedBody()),
    clientFormat,
    translation,
    context,
    hidesUsage: isNative && asksForUsage && !includeUsage,
    features: kept.length > 0 ? [...ownFeatures, ...kept] : ownFeatures,
    framing:
      !isNative && clientFormat === "generateContent" && !/(?:^|&)alt=sse(?:&|$)/.test(query) ? "array" : "events",
  };
}

const NO_FEATURES: readonly Feature[] = [];
const NO_OMITTED: readonly OmittedFeature[] = [];
const STREAM_OPTIONS: readonly Feature[] = ["stream_options"];
const RESPONSES: readonly Feature[] = ["responses"];
const NAMESPACES: readonly Feature[] = ["namespaces", "responses"];
const NAMESPACE = Buffer.from('"namespace"');

/** Returns the format of the call, without the features that the server rejected before. */
export function upstreamFormat(llm: LlmCall, target: Candidate["target"], model: string): Format | undefined {
  const { rejectedFeatures } = target.memory;
  if (rejectedFeatures.size > 0 && replaceableFeatures(llm, target).some((feature) => rejectedFeatures.has(feature)))
    return "chat";
  return target.provider.upstreamFormat(llm.dialect.format, model);
}

/** A server with OpenAI's API may lack the Responses API or parts of it. Chat completions can replace a call. */
function replaceableFeatures(llm: LlmCall, { provider, pathOverride }: Candidate["target"]): readonly Feature[] {
  const { format, operation } = llm.dialect;
  if (format !== "responses" || operation !== "call" || provider.mayLackResponses !== true) return NO_FEATURES;
  if (pathOverride !== undefined) return NO_FEATURES;
  return llm.bytes.includes(NAMESPACE) ? NAMESPACES : RESPONSES;
}

function fieldsThatMayLack(llm: LlmCall, { provider }: Target, format: Format): readonly OmittedFeature[] {
  return format === "chat" && provider.mayLackFields === true ? omittedFeatures(llm.bytes) : NO_OMITTED;
}

/** Returns whether the call is sent without a feature that the server rejected before. */
export function omitsFeatures(llm: LlmCall, target: Target, format: Format): boolean {
  const { rejectedFeatures } = target.memory;
  return rejectedFeatures.size > 0 && fieldsThatMayLack(llm, target, format).some((one) => rejectedFeatures.has(one));
}

function upstreamPath(call: UpstreamCall, target: Candidate["target"]): string {
  try {
    return target.provider.path(call, target.basePath);
  } catch (error) {
    if (!(error instanceof ModelNameError)) throw error;
    throw new LlmRejection({ status: 400, message: error.message, code: "invalid_model", param: "model" });
  }
}

function nativeBody(
  llm: LlmCall,
  call: UpstreamCall,
  options: Record<string, unknown> | undefined,
  asksForUsage: boolean,
  modelInBody: boolean,
): readonly Buffer[] {
  const { scan } = llm;
  const edits: Edit[] = [];
  if (scan.isForm) {
    const renamed = scan.modelSpan && scan.model !== call.model && call.model !== "";
    return spliceBytes(llm.bytes, renamed && scan.modelSpan ? [editAt(scan.modelSpan, call.model)] : []);
  }
  const insert = (member: string): void => {
    edits.push({ start: scan.bodyStart, end: scan.bodyStart, text: scan.isEmpty ? member : `${member},` });
  };
  const { model, modelSpan } = scan;
  if (modelInBody || call.format === "embeddings") {
    if (modelSpan === undefined) {
      if (call.model !== "") insert(`"model":${JSON.stringify(call.model)}`);
    } else if (model !== call.model) edits.push(editAt(modelSpan, JSON.stringify(call.model)));
  } else if (modelSpan && model !== undefined && withoutCollection(model) !== withoutCollection(call.model)) {
    // The path names the model, so the model in the body must match.
    const collection = model.slice(0, model.length - withoutCollection(model).length);
    edits.push(editAt(modelSpan, JSON.stringify(collection + withoutCollection(call.model))));
  }
  if (asksForUsage && options?.include_usage !== true) {
    const usageOption = JSON.stringify({ ...options, include_usage: true });
    const { streamOptionsSpan: span } = scan;
    if (span) {
      // Other values are left for the provider to reject.
      if (options || llm.bytes.toString("latin1", span.start, span.end) === "null")
        edits.push(editAt(span, usageOption));
    } else insert(`"stream_options":${usageOption}`);
  }
  return spliceBytes(llm.bytes, edits);
}

const WITHHELD: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  ...FORWARDING_HEADERS,
  "expect",
  "host",
  "accept-encoding",
  "cookie",
  "origin",
  "referer",
  "proxy-authorization",
  // A provider must not use another method or path than the policies checked.
  ...OVERRIDE_HEADERS,
]);

/** If `isReplaced` is true, the client's provider credentials are withheld. */
export function isForwarded(name: string, isReplaced: boolean): boolean {
  return (
    !includesHeader(WITHHELD, name) &&
    !name.startsWith("x-forwarded-") &&
    !(isReplaced && includesHeader(PROVIDER_CREDENTIAL_HEADERS, name))
  );
}

const COPIED_BYTES = 1024 * 1024;

/** `translatedTo` is the format of a translated body. */
export function upstreamRequest(
  exchange: Exchange,
  target: Target,
  path: string,
  body: readonly Buffer[],
  translatedTo: Format | undefined,
): OutgoingRequest {
  const headers = new HeaderList();
  const { pairs } = exchange.request.headers;
  const listed = exchange.request.headers.get("connection")?.toLowerCase();
  const key =
    target.credential.kind === "client"
      ? clientKey(exchange, target.credential.explicit)
      : target.credential.kind === "key"
        ? target.credential.read()
        : undefined;
  const replaces = target.credential.kind !== "client" || key !== undefined;
  headers.add("host", target.authority);
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (!isForwarded(name, replaces)) continue;
    if (listed?.includes(name) && listed.split(",").some((one) => one.trim() === name)) continue;
    headers.addFrom(exchange.request.headers, i);
  }
  if (key !== undefined) addKey(headers, target.provider.credential, key);
  const own = target.provider.headers;
  for (const name in own) if (!headers.has(name)) headers.add(name, own[name] as string);
  headers.add("accept-encoding", "identity");
  if (translatedTo !== undefined) {
    headers.set("content-type", "application/json");
    headers.set("accept", "*/*");
    // Only the Messages format reads this header.
    if (translatedTo !== "messages") headers.delete("anthropic-beta");
  }
  let size = 0;
  for (const piece of body) size += piece.length;
  headers.add("content-length", String(size));
  return { method: exchange.request.method, path, headers, body: joinBody(body, size) };
}

/** Returns what a signature or a token of the target covers. */
export function signedRequest(
  { method, path, headers }: OutgoingRequest,
  { address: { protocol, host, port } }: Target,
  body: readonly Buffer[],
): SignedRequest {
  return { method, protocol, hostname: host, port, path, headers, body };
}

function joinBody(pieces: readonly Buffer[], size: number): Buffer | Readable | undefined {
  if (pieces.length === 1) return pieces[0];
  return size <= COPIED_BYTES ? Buffer.concat(pieces, size) : Readable.from(pieces);
}

function parseStreamOptions(llm: LlmCall): Record<string, unknown> | undefined {
  const span = llm.scan.streamOptionsSpan;
  if (span === undefined) return undefined;
  const value = tryReadJson(OPTION, llm.bytes.subarray(span.start, span.end));
  return isMembers(value) ? { ...value } : undefined;
}

/** Removes the key that Google's clients may send in the query. */
export function withoutKey(query: string): string {
  if (!query.includes("key=")) return query;
  return query
    .split("&")
    .filter((part) => !part.startsWith("key="))
    .join("&");
}

function translatedSuffix(format: Format): string {
  return format === "chat" ? "/chat/completions" : format === "messages" ? "/messages" : "";
}

function unsupported(format: Format, provider: string): LlmRejection {
  return new LlmRejection({
    status: 400,
    message: `the provider ${provider} cannot be asked in the ${format} format`,
    code: "unsupported_format",
  });
}

function withUsage(body: Members): Members {
  const { stream_options: options } = body;
  return { ...body, stream_options: { ...(isMembers(options) ? options : {}), include_usage: true } };
}

/** Translations parse or encode these members as JSON, in one step, so long texts in them are limited. */
const JSON_MEMBERS: ReadonlySet<string> = new Set(["arguments", "input", "args", "response"]);

export function readTree(
  { bytes }: Pick<LlmCall, "bytes">,
  { tree, newId }: Pick<PlanOptions, "tree" | "newId">,
): Steps<Skeleton | NoSkeleton> {
  return skeletonSteps(tree, bytes, newId(), JSON_MEMBERS);
}

/** Throws `LlmRejection` if the body could not be parsed. The message names the `purpose`. */
export function requireTree(tree: Skeleton | NoSkeleton, purpose: string): Skeleton {
  if (tree === "not JSON")
    throw new LlmRejection({ status: 400, message: "the body is not valid JSON", code: "invalid_request_body" });
  if ("tooLarge" in tree) {
    const message = `a request ${tree.tooLarge} cannot ${purpose}`;
    throw new LlmRejection({ status: 413, message, code: "request_too_large" });
  }
  return tree;
}

function treeBodies(
  llm: LlmCall,
  call: UpstreamCall,
  translation: Translation | undefined,
  context: TranslationContext,
  asksForUsage: boolean,
  omitted: readonly OmittedFeature[],
  { provider }: Target,
  env: Pick<PlanOptions, "tree" | "newId">,
): readonly (readonly Buffer[])[] {
  const skeleton = requireTree(llm.tree ?? finish(readTree(llm, env)), "be translated");
  const write = (part: Members): readonly Buffer[] => {
    let body = translation ? translation.request(part, context) : { ...part };
    if (llm.caching) body = markPrompt(body, call.format, call.model, llm.caching);
    if (translation === undefined && provider.modelInBody && call.model !== "") body = { ...body, model: call.model };
    if (asksForUsage) body = withUsage(body);
    for (const feature of omitted) body = withoutFeature(body, feature);
    if (provider.adaptBody && provider.needsAdapting?.(call)) body = provider.adaptBody(body, call);
    return skeleton.write(body);
  };
  try {
    return (translation?.parts?.(skeleton.value, context) ?? [skeleton.value]).map(write);
  } catch (error) {
    if (error instanceof InputError)
      throw new LlmRejection({
        status: 413,
        message: "a request with so many long texts that change cannot be translated",
        code: "request_too_large",
      });
    if (!(error instanceof TranslationError)) throw error;
    throw new LlmRejection({
      status: 400,
      message: `${error.param}: ${error.message}`,
      param: error.param,
      code: "unsupported_parameter",
    });
  }
}

/** Returns undefined if the body cannot be parsed or `markPrompt` does not change it. */
function markedBody(
  llm: LlmCall,
  { format, model }: UpstreamCall,
  caching: PromptCaching,
  modelInBody: boolean,
  env: Pick<PlanOptions, "tree" | "newId">,
): readonly Buffer[] | undefined {
  const skeleton = llm.tree ?? finish(readTree(llm, env));
  if (skeleton === "not JSON" || "tooLarge" in skeleton) return undefined;
  const marked = markPrompt(skeleton.value, format, model, caching);
  if (marked === skeleton.value) return undefined;
  return skeleton.write(modelInBody && model !== "" ? { ...marked, model } : marked);
}
