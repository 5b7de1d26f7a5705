/**
 * `ai`: LLM providers as a backend. It reads the request, finds out what it asks for, and sends it on in the
 * client's own words where the provider speaks the same dialect, else in translation.
 */
import { type Backend, type BackendCall, type BackendEnv, type BackendRun, defineBackend } from "../../core/backend.ts";
import { type Exchange, type GatewayRequest, NO_BODY } from "../../core/exchange.ts";
import type { HookResult } from "../../core/policy.ts";
import { readBody } from "../../core/read-body.ts";
import type { Reply } from "../../core/reply.ts";
import { foreignCharset } from "../../lib/http/charset.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../lib/process/turns.ts";
import { createIdSource } from "../../lib/text/ids.ts";
import { type Dialect, dialectOf, modelsPathOf } from "../../llm/dialects/dialect.ts";
import { errorBody, type LlmError } from "../../llm/dialects/error-shape.ts";
import { LlmRequestFacts } from "../../llm/dialects/llm-facts.ts";
import { readingSteps } from "../../llm/dialects/read-request.ts";
import { scanForm } from "../../llm/dialects/scan-form.ts";
import { noteFreeRequest, noteSizedRequest } from "../../llm/dialects/sized-facts.ts";
import { createGuardWatch } from "../../llm/guards/guard-watch.ts";
import { bytesPerToken } from "../../llm/usage/estimate-size.ts";
import { createLlmMetrics } from "../../llm/usage/llm-metrics.ts";
import { guardAnswers } from "./answers/guard-answers.ts";
import { Settlement } from "./answers/settlement.ts";
import { createResponseCache } from "./cache/response-cache.ts";
import { forwardPlain, isWebsocket, UPLOAD } from "./forward-plain.ts";
import { compileModels } from "./models/compile-models.ts";
import { compileFailoverRules, DEFAULT_FAILOVER_ON } from "./models/failover-rules.ts";
import type { ModelTable } from "./models/model-table.ts";
import { modelsReply } from "./models/models-list.ts";
import { askedCall, createQuotes, pricesOf, type Quotes } from "./models/quotes.ts";
import { type AiConfig, aiSchema } from "./models/schema.ts";
import { applyPolicies, applyWebhooks, type PolicedCall, withTree } from "./requests/apply-policies.ts";
import { DeferredRun } from "./requests/deferred-run.ts";
import {
  MISSING_MODEL,
  modelNotFound,
  noModelFits,
  noteRefusal,
  refusal,
  shapeError,
  UNREADABLE_STREAM,
} from "./requests/refusals.ts";
import { PlanError } from "./requests/upstream-request.ts";
import { AiRun, sendJson } from "./run.ts";

const NO_BYTES = Buffer.alloc(0);
const RESPONSE_HEAD_TIMEOUT_MS = 300_000;
const NOTHING_RUNS: BackendRun = { abort: () => undefined, resume: () => undefined };

export const ai = defineBackend({
  key: "ai",
  doc: "LLM providers: one, several in groups, or a list of models.",
  schema: aiSchema,
  section: { name: "llm", defaultPort: 4000 },
  compile: (config, env) => compileAi(config, env),
});

function compileAi(config: AiConfig, env: BackendEnv): Backend {
  const table = compileModels(config, env);
  const metrics = createLlmMetrics(env.metrics);
  const settling = {
    clock: env.clock,
    metrics,
    prices: pricesOf(config, env),
  };
  const quotes = createQuotes(table, settling.prices);
  const cache = config.cache && createResponseCache(config.cache, JSON.stringify(config), env);
  const ids = createIdSource();
  const running = {
    logger: env.logger.for("llm"),
    clock: env.clock,
    metrics,
    rules: compileFailoverRules(config.failoverOn ?? DEFAULT_FAILOVER_ON),
    maxTreeBytes: config.maxTreeBytes,
    unsupported: config.unsupported,
    newId: () => ids.hex(12),
    nowSeconds: () => Math.floor(env.clock.now() / 1000),
  };
  return {
    facts: { name: config.name ?? env.name, type: "ai", protocol: "llm" },
    defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
    errorReply: shapeError,
    prepare: (exchange) => prepare(exchange, table, config.maxBodyBytes, quotes),
    call(exchange, call) {
      const llm = LlmRequestFacts.callOf(exchange);
      if (llm === undefined) {
        const { llm: sized } = exchange.facts;
        const dialect = dialectOf(exchange.request.path);
        return forwardPlain(table, exchange, call, running, sized && new Settlement(settling, sized, dialect));
      }
      const settlement = new Settlement(settling, exchange.facts.llm ?? {}, llm.dialect);
      const refuse = (error: LlmError): BackendRun => {
        settlement.nothing(error.code ?? "");
        noteRefusal(exchange, error);
        sendJson(call, error.status, errorBody(llm.dialect.format, error));
        return NOTHING_RUNS;
      };
      const start = (policed: PolicedCall): BackendRun => {
        if (policed.model === undefined && llm.dialect.format !== "opaque" && !table.hasFixedModels)
          return refuse(MISSING_MODEL);
        const conditions = table.hasConditions ? askedCall(exchange, settling.prices) : undefined;
        const candidates = table.candidates(policed.model, conditions);
        if (candidates === undefined) return refuse(modelNotFound(policed.model));
        if (candidates.length === 0 && conditions !== undefined) return refuse(noModelFits(policed.model));
        const guarding = guardAnswers(policed, llm.dialect, exchange);
        if (guarding === "unreadable") return refuse(UNREADABLE_STREAM);
        const ask = (to: BackendCall): BackendRun => {
          const { shown, onRefusal } = guarding(to);
          const run = new AiRun(running, exchange, shown, policed.llm, candidates, settlement);
          // A provider whose answer was refused must not go on writing it.
          onRefusal(() => run.abort());
          run.start();
          return run;
        };
        if (cache === undefined) return ask(call);
        const through = (to: BackendCall): BackendCall => guarding(to).shown;
        const { model, llm: asked } = policed;
        return cache.run(exchange, call, { model, llm: asked, candidates, settlement, ask, through });
      };
      const refused = (error: unknown): BackendRun => {
        if (error instanceof PlanError) return refuse(error.error);
        throw error;
      };
      const policing = applyPolicies(llm, running, createGuardWatch(exchange, "request"));
      let isAborted = false;
      const isOver = (): boolean => isAborted;
      const later = (policed: Promise<PolicedCall>): BackendRun => {
        const asked = policed.then(
          (judged) => () => start(judged),
          (error: unknown) => () => refused(error),
        );
        return new DeferredRun(call, asked, () => {
          isAborted = true;
          settlement.nothing("aborted");
        });
      };
      if (llm.bytes.length > SLICED_BYTES)
        return later(
          inTurns(policing, isOver)
            .then((policed) => applyWebhooks(policed, running, isOver))
            .then((policed) => inTurns(withTree(policed, table.candidates(policed.model), running), isOver)),
        );
      try {
        const policed = finish(policing);
        return policed.rules.requestWebhooks ? later(applyWebhooks(policed, running, isOver)) : start(policed);
      } catch (error) {
        return refused(error);
      }
    },
    describe: () => ({
      models: table.names,
      targets: table.targets.map(({ name, provider, display, health, quota }) => ({
        name,
        provider: provider.name,
        target: display,
        ...health.describe(),
        ...quota?.describe(),
      })),
    }),
  };
}

/** Reads and checks the body; what is wrong with it is said in the client's dialect. */
function prepare(exchange: Exchange, table: ModelTable, maxBodyBytes: number, quotes: Quotes | undefined): HookResult {
  const { request } = exchange;
  if (request.method !== "POST") {
    const models =
      (table.isClosed || exchange.modelAccess !== undefined) && (request.method === "GET" || request.method === "HEAD")
        ? modelsPathOf(request.path)
        : undefined;
    if (isWebsocket(request)) return prepareUpgrade(exchange, table);
    if (models === undefined) noteUnread(exchange, dialectOf(request.path));
    return models && modelsReply(table, models, exchange.modelAccess);
  }
  const { body } = request;
  // A second attempt: the body was read by the first.
  const known = LlmRequestFacts.callOf(exchange);
  if (known) {
    request.body = { kind: "bytes", bytes: known.bytes };
    return undefined;
  }
  const encoding = request.headers.get("content-encoding");
  const dialect = dialectOf(request.path);
  const { format } = dialect;
  if (encoding !== undefined && encoding !== "identity") {
    return refusal(exchange, format, {
      status: 415,
      message: `a request body with content-encoding ${encoding} is not supported`,
      code: "unsupported_encoding",
    });
  }
  const charset = foreignCharset(request.headers);
  if (charset !== undefined) {
    return refusal(exchange, format, {
      status: 415,
      message: `a request body with the charset ${charset} is not supported`,
      code: "unsupported_charset",
    });
  }
  // Where only one provider can be meant, a form streams unread.
  const form = isForm(request, dialect);
  if (form && (table.isClosed || table.targets.some(({ provider }) => provider.readsForms === true))) {
    const read = (bytes: Buffer): Reply | undefined => understandForm(exchange, dialect, bytes);
    return body.kind === "stream"
      ? readBody(body, maxBodyBytes).then(read)
      : read(body.kind === "bytes" ? body.bytes : NO_BYTES);
  }
  if (form || isUnread(request, dialect)) {
    noteUnread(exchange, dialect);
    return undefined;
  }
  const understood = (bytes: Buffer): Reply | undefined | Promise<Reply | undefined> =>
    bytes.length <= SLICED_BYTES
      ? finish(understand(exchange, bytes, quotes))
      : inTurns(understand(exchange, bytes, quotes), () => exchange.isOver);
  if (body.kind === "stream") return readBody(body, maxBodyBytes).then(understood);
  return understood(body.kind === "bytes" ? body.bytes : NO_BYTES);
}

/** Clients that try a WebSocket first (Codex) must hear at once that there is none. */
function prepareUpgrade(exchange: Exchange, table: ModelTable): Reply | undefined {
  const { path } = exchange.request;
  const [target] = table.targets;
  if (table.targets.length === 1 && target?.provider.upgrades?.(path) === true) {
    // What goes through it is not read: it needs a budget that is not used up.
    noteFreeRequest(exchange);
    return undefined;
  }
  return refusal(exchange, dialectOf(path).format, {
    status: 426,
    message: "there is no WebSocket at this path: use HTTP",
    code: "upgrade_required",
  });
}

/** What is only stored has no call to read. Anything else is JSON, whatever its content type says: many servers do not look at it. */
function isUnread({ headers, body, path }: GatewayRequest, { format, free }: Dialect): boolean {
  if (format !== "opaque") return false;
  // Google's uploads begin with JSON too.
  if (free && UPLOAD.test(path)) return true;
  const type = headers.get("content-type") ?? "";
  return free ? !/^application\/json\s*(?:;|$)/i.test(type) : body.kind === "none";
}

function isForm({ headers }: GatewayRequest, { suffix }: Dialect): boolean {
  return FORMS.has(suffix) && /^multipart\/form-data\s*;/i.test(headers.get("content-type") ?? "");
}

function understandForm(exchange: Exchange, dialect: Dialect, bytes: Buffer): Reply | undefined {
  const { request } = exchange;
  const scanned = scanForm(bytes, request.headers.get("content-type") ?? "");
  request.body = { kind: "bytes", bytes };
  if (!scanned.ok)
    return refusal(exchange, dialect.format, { status: 400, message: scanned.reason, code: "invalid_request_body" });
  const { scan } = scanned;
  const facts = new LlmRequestFacts(scan.model, scan.stream ?? false, NO_BYTES, { dialect, bytes, scan, rules: [] });
  facts.estimatedTokens = Math.ceil(bytes.length / bytesPerToken(request));
  exchange.facts.llm = facts;
  return undefined;
}

/** What takes forms; elsewhere a body that says it is one is JSON to servers that do not look at the type. */
const FORMS: ReadonlySet<string> = new Set([
  ...["/images/edits", "/images/variations", "/audio/transcriptions", "/audio/translations"],
]);

/** Token limits count every request with a body: what is not read, by its size. */
function noteUnread(exchange: Exchange, { free }: Dialect): void {
  if (exchange.request.body.kind === "none") return;
  if (free) noteFreeRequest(exchange);
  else noteSizedRequest(exchange);
}

function* understand(exchange: Exchange, bytes: Buffer, quotes: Quotes | undefined): Steps<Reply | undefined> {
  const reading = yield* readingSteps(exchange.request.path, bytes, "exact");
  const { dialect } = reading;
  exchange.request.body = bytes.length === 0 ? NO_BODY : { kind: "bytes", bytes };
  if (!reading.ok)
    return refusal(exchange, dialect.format, { status: 400, message: reading.reason, code: "invalid_request_body" });
  const { model, streaming, scan } = reading;
  const quote = quotes?.(model);
  const facts = new LlmRequestFacts(model, streaming, bytes, { dialect, bytes, scan, rules: [], quote });
  if (dialect.free) facts.makeFree();
  if (bytes.length > SLICED_BYTES) yield* facts.count();
  exchange.facts.llm = facts;
  return undefined;
}
