/**
 * Reads a request before a target is chosen: validates the body, extracts the LLM call, answers model lists and
 * WebSocket upgrades, and detects requests that are forwarded unread. Errors use the client's dialect.
 */
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { type Exchange, type GatewayRequest, NO_BODY } from "../../core/exchange.ts";
import type { LlmFacts, ModelAccess } from "../../core/facts.ts";
import type { HookResult } from "../../core/policy.ts";
import { readBody } from "../../core/read-body.ts";
import { jsonReply, type Reply } from "../../core/reply.ts";
import { foreignCharset } from "../../http/charset.ts";
import type { ModelPolicies } from "../models/model-policies.ts";
import type { ModelTable } from "../models/model-table.ts";
import type { Quotes } from "../models/quotes.ts";
import { type Dialect, dialectOf, type ModelsPath, modelsPathOf } from "../request/dialect.ts";
import { errorBody, type LlmError } from "../request/llm-errors.ts";
import { LlmRequestFacts, noteFreeRequest, noteSizedRequest } from "../request/llm-facts.ts";
import { ModelNames, modelsInHeaders, modelsInQuery } from "../request/named-models.ts";
import { readingSteps, scanForm, scanRequest } from "../request/read-request.ts";
import { bytesPerToken } from "../usage/estimate-tokens.ts";
import { modelNotFound, rejection } from "./rejections.ts";

const NO_BYTES = Buffer.alloc(0);
const NO_NAMES: readonly string[] = [];
/** Methods without a defined body; providers may treat one differently. */
const BODILESS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

export interface Reading {
  readonly table: ModelTable;
  readonly policies: ModelPolicies | undefined;
  readonly maxBodyBytes: number;
  readonly quotes: Quotes | undefined;
}

export function prepareCall(exchange: Exchange, reading: Reading, needsModel: boolean): HookResult {
  const { table, policies, maxBodyBytes } = reading;
  const { request } = exchange;
  if (request.body.kind !== "none" && BODILESS.has(request.method)) {
    return rejection(exchange, dialectOf(request.path), {
      status: 400,
      message: `a ${request.method} request with a body is not supported; use POST`,
      code: "unexpected_body",
    });
  }
  // If a rule needs the model, bodies of other methods are read like those of a POST.
  const isJudged = request.body.kind !== "none" && (needsModel || exchange.identity.modelAccess !== undefined);
  if (request.method !== "POST" && !isJudged) {
    const models =
      (table.isClosed || exchange.identity.modelAccess !== undefined) &&
      (request.method === "GET" || request.method === "HEAD")
        ? modelsPathOf(request.path)
        : undefined;
    if (isWebsocket(request)) return prepareUpgrade(exchange, table);
    if (models === undefined) noteUnread(exchange, dialectOf(request.path));
    const mayUse = (model: string): boolean => policies?.mayUse(exchange, model) !== false;
    return models && modelsReply(table, models, exchange.identity.modelAccess, mayUse);
  }
  const { body } = request;
  // On a retry the body was already read.
  const known = LlmRequestFacts.callOf(exchange);
  if (known) {
    request.body = { kind: "bytes", bytes: known.bytes };
    return undefined;
  }
  const encoding = request.headers.get("content-encoding");
  const dialect = dialectOf(request.path);
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
      ? readBody(exchange, body, maxBodyBytes).then(read)
      : read(body.kind === "bytes" ? body.bytes : NO_BYTES);
  }
  if (form || isUnread(request, dialect, isJudged)) {
    noteUnread(exchange, dialect);
    return undefined;
  }
  const understood = (bytes: Buffer): Reply | undefined | Promise<Reply | undefined> =>
    bytes.length <= SLICED_BYTES
      ? finish(understand(exchange, bytes, reading, isJudged))
      : runInSlices(understand(exchange, bytes, reading, isJudged), () => exchange.isOver);
  if (body.kind === "stream") return readBody(exchange, body, maxBodyBytes).then(understood);
  return understood(body.kind === "bytes" ? body.bytes : NO_BYTES);
}

/** Some clients (Codex) try a WebSocket first and need an immediate rejection to fall back to HTTP. */
function prepareUpgrade(exchange: Exchange, table: ModelTable): Reply | undefined {
  const { path } = exchange.request;
  const [target] = table.targets;
  if (table.targets.length === 1 && target?.provider.upgrades?.(path) === true) {
    // The gateway does not read the tunnel, so only exhausted budgets can reject it.
    noteFreeRequest(exchange, modelsInHead(exchange));
    return undefined;
  }
  return rejection(exchange, dialectOf(path), {
    status: 426,
    message: "there is no WebSocket at this path: use HTTP",
    code: "upgrade_required",
  });
}

/**
 * Requests that only store data contain no call. Everything else is read as JSON whatever its content type says,
 * because many servers ignore the type. If the model matters to a rule, stored data is read too, except uploads.
 */
function isUnread({ headers, body, path }: GatewayRequest, { format, free }: Dialect, isJudged: boolean): boolean {
  if (format !== "opaque") return false;
  // Google's uploads start with JSON too.
  if (free && UPLOAD.test(path)) return true;
  const type = headers.get("content-type") ?? "";
  if (!free) return body.kind === "none";
  return isJudged ? /^multipart\/form-data\s*;/i.test(type) : !/^application\/json\s*(?:;|$)/i.test(type);
}

export function isForm({ headers }: GatewayRequest, { suffix }: Dialect): boolean {
  return FORMS.has(suffix) && /^multipart\/form-data\s*;/i.test(headers.get("content-type") ?? "");
}

/**
 * With a single provider and no rule that needs the model, a form is streamed unread, as is one that exceeds the body
 * limit.
 */
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
  const call = { dialect, bytes, scan, rules: [] };
  const others = [...(scan.formModels ?? []), ...modelsInHead(exchange)];
  const facts = new LlmRequestFacts(scan.model, scan.stream ?? false, NO_BYTES, call, others);
  facts.estimatedTokens = Math.ceil(bytes.length / bytesPerToken(request));
  exchange.facts.llm = facts;
  return undefined;
}

/**
 * Paths that accept forms. Elsewhere a body declared as a form may be parsed as JSON by servers that ignore the type.
 */
const FORMS: ReadonlySet<string> = new Set([
  ...["/videos", "/images/edits", "/images/variations", "/audio/transcriptions", "/audio/translations"],
]);

/** Token limits count every request with a body; unread ones by size. */
function noteUnread(exchange: Exchange, { free }: Dialect): void {
  if (exchange.request.body.kind === "none") return;
  if (free) noteFreeRequest(exchange);
  else noteSizedRequest(exchange);
}

/** Providers receive the client's query and headers, which can name models too. */
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
  const quote = quotes?.(model, scan.hasAlternatives ? () => LlmRequestFacts.modelsOf(facts).slice(1) : undefined);
  const others = isJudged ? modelsInHead(exchange) : NO_NAMES;
  const facts: LlmRequestFacts = new LlmRequestFacts(
    model,
    streaming,
    bytes,
    { dialect, bytes, scan, rules: [], quote },
    others,
  );
  if (dialect.free) facts.makeFree();
  if (bytes.length > SLICED_BYTES) {
    yield* facts.count();
    if (isJudged) yield* facts.findModels();
  }
  exchange.facts.llm = facts;
  const problem = scan.hasAlternatives
    ? alternativeProblem(LlmRequestFacts.modelsOf(facts).slice(1), table)
    : undefined;
  return problem && rejection(exchange, dialect, problem);
}

/** Model lists and model policies apply to every alternative model that the provider may choose. */
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

/** Google's upload paths. */
export const UPLOAD = /(?:^|\/)upload\/v1(?:beta)?\//;

export function isWebsocket({ method, headers }: GatewayRequest): boolean {
  return method === "GET" && headers.get("upgrade")?.toLowerCase() === "websocket";
}

export function restoreRecordedCall(exchange: Exchange, recorded: LlmFacts, quotes: Quotes | undefined): void {
  const { request } = exchange;
  const dialect = dialectOf(request.path);
  const { requestModel, maxOutputTokens } = recorded;
  // Requests forwarded unread have no call.
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
  // The recorded outcome, which limits are settled with.
  const { responseModel, provider, inputTokens, outputTokens, totalTokens } = recorded;
  if (responseModel !== undefined) facts.responseModel = responseModel;
  if (provider !== undefined) facts.provider = provider;
  if (inputTokens !== undefined) facts.inputTokens = inputTokens;
  if (outputTokens !== undefined) facts.outputTokens = outputTokens;
  if (totalTokens !== undefined) facts.totalTokens = totalTokens;
  exchange.facts.llm = facts;
}

/** `access`: the models that the client's key may use; undefined for all. `rules`: the authorization of each model. */
export function modelsReply(
  table: ModelTable,
  path: ModelsPath,
  access: ModelAccess | undefined,
  rules: (model: string) => boolean,
): Reply {
  const { name } = path;
  const mayUse = (model: string): boolean => (access === undefined || access.allows(model)) && rules(model);
  // Without a model list in the configuration, only the key's own list is known.
  const names = table.isClosed ? table.names.filter(mayUse) : (access?.names ?? []);
  if (name === undefined) return jsonReply(200, { object: "list", data: names.map(modelObject) });
  if (mayUse(name) && table.possible(name).length > 0) return jsonReply(200, modelObject(name));
  return jsonReply(
    404,
    errorBody("chat", {
      status: 404,
      message: `the model ${JSON.stringify(name)} does not exist`,
      code: "model_not_found",
      param: "model",
    }),
  );
}

/** Configured names have no creation time, but clients require the field. */
function modelObject(id: string) {
  return { id, object: "model", created: 0, owned_by: "gateway" };
}
