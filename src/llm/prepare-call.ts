/**
 * Reads a request before a target is chosen. It validates the body, extracts the LLM call, responds to model list
 * requests, and detects requests that are forwarded unread.
 */
import { peerInput } from "../base/peer-inputs.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../base/sliced-work.ts";
import type { PrepareNeeds } from "../core/backend.ts";
import { type Exchange, type GatewayRequest, NO_BODY } from "../core/exchange.ts";
import type { HookResult } from "../core/policy.ts";
import { readBody } from "../core/read-body.ts";
import { jsonReply, type Reply } from "../core/reply.ts";
import type { LlmAttributes, ModelAccess } from "../core/request-attributes.ts";
import { foreignCharset } from "../http/charset.ts";
import { asksForWebSocket } from "../http/headers.ts";
import type { ListedModels } from "./models/listed-models.ts";
import type { ModelPolicies, ModelTable, Quotes } from "./models/model-table.ts";
import {
  type Cost,
  type Dialect,
  detectDialect,
  endpointCost,
  type ModelsPath,
  parseModelsPath,
} from "./request/dialect.ts";
import { LlmRequestAttributes, llmCall, noteSizedRequest, noteUncountedRequest } from "./request/llm-call.ts";
import { errorBody, type LlmError, modelNotFound, rejection } from "./request/llm-errors.ts";
import {
  ModelNames,
  modelsInHeaders,
  modelsInQuery,
  readingSteps,
  scanForm,
  scanRequest,
} from "./request/read-request.ts";
import { bytesPerToken } from "./usage/estimate-tokens.ts";

const BODY = peerInput("client/llm-request");

const NO_BYTES = Buffer.alloc(0);
const NO_NAMES: readonly string[] = [];
/**
 * The tokens of smaller bodies are counted when a limit, a budget, or a rule first reads them, which takes about a
 * millisecond at most. Those of larger bodies are counted in steps, because that reader would block the event loop.
 */
const COUNTED_LATER_BYTES = 128 * 1024;
/** These methods define no meaning for a body, so a provider may interpret it differently than the gateway. */
const BODILESS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

export interface Reading {
  readonly table: ModelTable;
  readonly policies: ModelPolicies | undefined;
  readonly maxBodyBytes: number;
  readonly quotes: Quotes | undefined;
  readonly listed: ListedModels | undefined;
}

/** Returns a Reply if the request is not forwarded. */
export function readCall(
  exchange: Exchange,
  reading: Reading,
  { model: needsModel, call: needsCall }: Pick<PrepareNeeds, "model" | "call">,
): HookResult {
  const { table, policies, maxBodyBytes } = reading;
  const { request } = exchange;
  const hasBody = request.body.kind !== "none";
  if (hasBody && BODILESS.has(request.method)) {
    return rejection(exchange, detectDialect(request.path), {
      status: 400,
      message: `a ${request.method} request with a body is not supported; use POST`,
      code: "unexpected_body",
    });
  }
  const isJudged = hasBody && (needsModel || exchange.identity.modelAccess !== undefined);
  const isRead =
    request.method === "POST" ||
    (hasBody && (isJudged || needsCall || table.isClosed || namesItsModel(detectDialect(request.path))));
  if (!isRead) {
    const models =
      (table.isClosed || exchange.identity.modelAccess !== undefined) &&
      (request.method === "GET" || request.method === "HEAD")
        ? parseModelsPath(request.path)
        : undefined;
    if (asksForWebSocket(request.method, request.headers)) return prepareUpgrade(exchange, table);
    if (models === undefined) noteUnread(exchange, requestCost(exchange));
    const mayUse = (model: string): boolean => policies?.mayUse(exchange, model) !== false;
    if (models === undefined) return undefined;
    const reply = (listed: readonly string[]): Reply =>
      modelsReply(table, listed, models, exchange.identity.modelAccess, mayUse, modelListFormat(request));
    const { listed } = reading;
    return models.name === undefined && table.isClosed && listed ? listed.names().then(reply) : reply(NO_NAMES);
  }
  const { body } = request;
  // On a retry, the body was already read.
  const known = exchange.state(llmCall);
  if (known) {
    request.body = { kind: "bytes", bytes: known.bytes };
    return undefined;
  }
  const encoding = request.headers.get("content-encoding");
  const dialect = detectDialect(request.path);
  if (encoding !== undefined && encoding !== "identity") {
    return rejection(exchange, dialect, {
      status: 415,
      message: `a request body with content-encoding ${encoding} is not supported`,
      code: "unsupported_encoding",
    });
  }
  const charset = foreignCharset(request.headers);
  if (charset !== undefined) {
    return rejection(exchange, dialect, {
      status: 415,
      message: `a request body with the charset ${charset} is not supported`,
      code: "unsupported_charset",
    });
  }
  const form = isForm(request, dialect);
  if (form && readsForm(exchange, reading, needsModel)) {
    const read = (bytes: Buffer): Reply | undefined => understandForm(exchange, dialect, bytes);
    return body.kind === "stream"
      ? readBody(exchange, body, BODY.upTo(maxBodyBytes)).then(read)
      : read(body.kind === "bytes" ? body.bytes : NO_BYTES);
  }
  if (form || isUnread(request, dialect, isJudged)) {
    noteUnread(exchange, requestCost(exchange));
    return undefined;
  }
  const understood = (bytes: Buffer): Reply | undefined | Promise<Reply | undefined> =>
    bytes.length <= SLICED_BYTES
      ? finish(understand(exchange, bytes, reading, isJudged))
      : runInSlices(understand(exchange, bytes, reading, isJudged), () => exchange.isOver);
  if (body.kind === "stream") return readBody(exchange, body, BODY.upTo(maxBodyBytes)).then(understood);
  return understood(body.kind === "bytes" ? body.bytes : NO_BYTES);
}

/** Providers may run a call with any method that has a body. */
function namesItsModel({ isKnown, runsRequestedModel }: Dialect): boolean {
  return isKnown && runsRequestedModel;
}

/** Some clients, such as Codex, try a WebSocket first and fall back to HTTP if it is rejected. */
function prepareUpgrade(exchange: Exchange, table: ModelTable): Reply | undefined {
  const { path } = exchange.request;
  const [target] = table.targets;
  if (table.targets.length === 1 && target?.provider.upgrades?.(path) === true) {
    // The gateway does not read the tunnel, so it cannot count its tokens.
    noteUncountedRequest(exchange, requestCost(exchange), modelsInHead(exchange));
    return undefined;
  }
  return rejection(exchange, detectDialect(path), {
    status: 426,
    message: "there is no WebSocket at this path: use HTTP",
    code: "upgrade_required",
  });
}

/** An opaque call is read regardless of its content type, because many servers ignore the type. */
function isUnread({ headers, body, path }: GatewayRequest, { format, operation }: Dialect, isJudged: boolean): boolean {
  if (format !== "opaque") return false;
  const isCall = operation !== "count" && operation !== "objects";
  if (!isCall && UPLOAD.test(path)) return true;
  const type = headers.get("content-type") ?? "";
  if (isCall) return body.kind === "none";
  return isJudged ? /^multipart\/form-data\s*;/i.test(type) : !/^application\/json\s*(?:;|$)/i.test(type);
}

function isForm({ headers }: GatewayRequest, { suffix }: Dialect): boolean {
  return FORMS.has(suffix) && /^multipart\/form-data\s*;/i.test(headers.get("content-type") ?? "");
}

function readsForm(
  { identity: { modelAccess }, request }: Exchange,
  { table, maxBodyBytes }: Reading,
  needsModel: boolean,
): boolean {
  if (table.isClosed || modelAccess !== undefined) return true;
  if (table.targets.some(({ provider }) => provider.readsForms === true)) return true;
  const { body } = request;
  return needsModel && !(body.kind === "stream" && (body.length ?? maxBodyBytes + 1) > maxBodyBytes);
}

function understandForm(exchange: Exchange, dialect: Dialect, bytes: Buffer): Reply | undefined {
  const { request } = exchange;
  const scanned = scanForm(bytes, request.headers.get("content-type") ?? "");
  request.body = { kind: "bytes", bytes };
  if (!scanned.ok)
    return rejection(exchange, dialect, { status: 400, message: scanned.reason, code: "invalid_request_body" });
  const { scan } = scanned;
  const others = [...(scan.formModels ?? []), ...modelsInHead(exchange)];
  const attributes = new LlmRequestAttributes(scan.model, scan.stream ?? false, NO_BYTES, others);
  // Files are estimated by their size, and text fields by their text.
  const text = scan.formText ?? { bytes: 0, tokens: 0 };
  attributes.setCost(requestCost(exchange));
  attributes.estimatedTokens = Math.ceil((bytes.length - text.bytes) / bytesPerToken(request)) + Math.ceil(text.tokens);
  exchange.attributes.llm = attributes;
  exchange.setState(llmCall, { dialect, bytes, scan, rules: [] });
  return undefined;
}

/** These paths accept forms. On other paths, a server that ignores the content type may parse the body as JSON. */
const FORMS: ReadonlySet<string> = new Set([
  ...["/videos", "/images/edits", "/images/variations", "/audio/transcriptions", "/audio/translations"],
]);

function requestCost({ request }: Exchange): Cost {
  const { method, path, query } = request;
  return endpointCost(
    { method, path, query, isUpgrade: asksForWebSocket(request.method, request.headers) },
    detectDialect(path),
  );
}

function noteUnread(exchange: Exchange, cost: Cost): void {
  if (cost !== "free") noteSizedRequest(exchange, cost);
  else if (exchange.request.body.kind !== "none") noteUncountedRequest(exchange, cost);
}

function modelsInHead({ request: { query }, sentPairs }: Exchange): readonly string[] {
  const found = new ModelNames();
  modelsInQuery(query, found);
  modelsInHeaders(sentPairs, found);
  return found.names;
}

function* understand(
  exchange: Exchange,
  bytes: Buffer,
  { quotes, table }: Reading,
  isJudged: boolean,
): Steps<Reply | undefined> {
  const read = yield* readingSteps(exchange.request.path, bytes, "exact");
  const { dialect } = read;
  exchange.request.body = bytes.length === 0 ? NO_BODY : { kind: "bytes", bytes };
  if (!read.ok)
    return rejection(exchange, dialect, { status: 400, message: read.reason, code: "invalid_request_body" });
  const { model, streaming, scan } = read;
  const quote = quotes?.(
    model,
    scan.hasAlternatives ? () => LlmRequestAttributes.modelsOf(attributes).slice(1) : undefined,
  );
  const others = isJudged ? modelsInHead(exchange) : NO_NAMES;
  const attributes: LlmRequestAttributes = new LlmRequestAttributes(model, streaming, bytes, others);
  attributes.setCost(requestCost(exchange));
  if (bytes.length > COUNTED_LATER_BYTES) yield* attributes.count();
  if (bytes.length > SLICED_BYTES && isJudged) yield* attributes.findModels();
  exchange.attributes.llm = attributes;
  const isUnknownModel = table.isClosed && table.possible(model).length === 0;
  exchange.setState(llmCall, { dialect, bytes, scan, rules: [], quote, isUnknownModel });
  const problem = scan.hasAlternatives
    ? alternativeProblem(LlmRequestAttributes.modelsOf(attributes).slice(1), table)
    : undefined;
  return problem && rejection(exchange, dialect, problem);
}

function alternativeProblem(names: readonly string[], table: ModelTable): LlmError | undefined {
  for (const name of names) {
    const possible = table.possible(name);
    if (table.isClosed && possible.length === 0) return modelNotFound(name);
    if (table.ownScope(name) !== undefined || possible.some(({ scope }) => scope !== undefined))
      return {
        status: 400,
        message: `the model ${JSON.stringify(name)} has policies of its own: ask for it as 'model', not as an alternative`,
        code: "invalid_request_body",
      };
  }
  return undefined;
}

export const UPLOAD = /(?:^|\/)upload\/v1(?:beta)?\//;

export function restoreRecordedCall(exchange: Exchange, recorded: LlmAttributes, quotes: Quotes | undefined): void {
  const { request } = exchange;
  const dialect = detectDialect(request.path);
  const { requestModel, maxOutputTokens } = recorded;
  // Requests that are forwarded unread have no call.
  const isRead = !BODILESS.has(request.method) && (requestModel !== undefined || dialect.format !== "opaque");
  const body = { model: dialect.pathModel === undefined ? requestModel : undefined, max_tokens: maxOutputTokens };
  const bytes = Buffer.from(JSON.stringify(body));
  const scanned = isRead ? scanRequest(bytes) : undefined;
  if (scanned?.ok !== true) {
    exchange.attributes.llm = { ...recorded };
    return;
  }
  const model = dialect.pathModel ?? requestModel;
  const scan = isForm(request, dialect) ? { ...scanned.scan, isForm: true as const } : scanned.scan;
  const attributes = new LlmRequestAttributes(model, recorded.streaming ?? false, bytes);
  attributes.setCost(requestCost(exchange));
  attributes.estimatedTokens = recorded.estimatedTokens ?? 0;
  const { responseModel, provider, inputTokens, outputTokens, totalTokens } = recorded;
  if (responseModel !== undefined) attributes.responseModel = responseModel;
  if (provider !== undefined) attributes.provider = provider;
  if (inputTokens !== undefined) attributes.inputTokens = inputTokens;
  if (outputTokens !== undefined) attributes.outputTokens = outputTokens;
  if (totalTokens !== undefined) attributes.totalTokens = totalTokens;
  exchange.attributes.llm = attributes;
  exchange.setState(llmCall, { dialect, bytes, scan, rules: [], quote: quotes?.(model) });
}

/**
 * `listed` contains the models that providers list for patterns, and `access` the models of the client's key. `rules`
 * checks the authorization of each model.
 */
function modelsReply(
  table: ModelTable,
  listed: readonly string[],
  path: ModelsPath,
  access: ModelAccess | undefined,
  rules: (model: string) => boolean,
  format: ModelListFormat,
): Reply {
  const { name } = path;
  const mayUse = (model: string): boolean => (access === undefined || access.allows(model)) && rules(model);
  // Without configured models, the only available list is that of the client's key.
  const names = table.isClosed ? [...new Set([...table.names, ...listed])].filter(mayUse) : (access?.names ?? []);
  if (name === undefined) return jsonReply(200, modelList(format, names));
  if (mayUse(name) && table.possible(name).length > 0) return jsonReply(200, modelObject(format, name));
  return jsonReply(
    404,
    errorBody(format, {
      status: 404,
      message: `the model ${JSON.stringify(name)} does not exist`,
      code: "model_not_found",
      param: "model",
    }),
  );
}

type ModelListFormat = "chat" | "messages" | "generateContent";

/** The OpenAI and Anthropic APIs list models at the same path. */
function modelListFormat({ path, headers }: Pick<GatewayRequest, "path" | "headers">): ModelListFormat {
  if (/\/v1beta\/models(?:\/|$)/.test(path)) return "generateContent";
  return headers.has("anthropic-version") ? "messages" : "chat";
}

function modelList(format: ModelListFormat, names: readonly string[]): object {
  const data = names.map((name) => modelObject(format, name));
  if (format === "generateContent") return { models: data };
  if (format === "chat") return { object: "list", data };
  return { data, has_more: false, first_id: names[0] ?? null, last_id: names.at(-1) ?? null };
}

/** Configured models have no creation time, but the Chat and Messages formats require one. */
function modelObject(format: ModelListFormat, id: string): object {
  switch (format) {
    case "messages":
      return { type: "model", id, display_name: id, created_at: "1970-01-01T00:00:00Z" };
    case "generateContent":
      return {
        name: `models/${id}`,
        displayName: id,
        supportedGenerationMethods: ["generateContent", "streamGenerateContent", "countTokens"],
      };
    case "chat":
      return { id, object: "model", created: 0, owned_by: "gateway" };
  }
}
