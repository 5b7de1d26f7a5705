/**
 * Token limits, rules about models and keys with a list of models on plain HTTP backends, which read no bodies themselves:
 * where an entered scope has one, a request that names a model is treated as an LLM call, and the usage is read from the
 * answer as it passes. A limit of the route itself counts every request with a body, what is no such
 * call by its size; a limit of the gateway counts what looks like a call. Where a rule or a key must know the model,
 * bodies that could be read in two ways are rejected, and forms are read, too. Only bodies that may begin like JSON, and
 * these forms, are held; uploads stream.
 */

import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayResponse, RequestBody } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { CompiledScope } from "../../core/policy.ts";
import { hiddenBody } from "../../http/charset.ts";
import {
  beginningOf,
  detectLlmRequest,
  headOf,
  mayNameModel,
  modelsInHead,
} from "../../llm/request/detect-llm-request.ts";
import { dialectOf } from "../../llm/request/dialect.ts";
import { LlmRequestFacts, noteFreeRequest, noteSizedRequest } from "../../llm/request/llm-facts.ts";
import { ModelNames, modelsInQuery } from "../../llm/request/named-models.ts";
import { scanForm } from "../../llm/request/read-request.ts";
import { createUsageTap, settleUsage } from "../../llm/usage/response-usage.ts";
import type { RequestRun } from "./run-hooks.ts";

/** As on LLM routes: images travel inside the JSON. */
const MAX_LLM_BODY_BYTES = 32 * 1024 * 1024;

/** What could hold an LLM call that is written in another way. */
const JSON_TYPE = /^\s*(?:$|application\/(?:[\w.-]+\+)?json\b)/i;
const FORM_TYPE = /^\s*multipart\/form-data\b/i;
const FIELDS_TYPE = /^\s*application\/x-www-form-urlencoded\b/i;

export interface SightRun extends RequestRun {
  /** How the body begins, which stays where it is; undefined if it is empty. */
  peekBody(next: (first: Buffer | undefined) => void): void;
}

/** `next` gets the scopes whose token limits count the request. */
export function lookAtBody(
  run: SightRun,
  scopes: readonly CompiledScope[],
  next: (charged: readonly CompiledScope[]) => void,
): void {
  const { exchange } = run;
  const { request, facts } = exchange;
  const wants = sightOf(scopes, exchange);
  // A second attempt: the first has looked.
  if (facts.backend?.type !== "static" || facts.llm !== undefined || !(wants.counts || wants.model)) {
    next(scopes);
    return;
  }
  if (request.body.kind === "none") {
    if (wants.model) noteHead(exchange);
    next(scopes);
    return;
  }
  const hidden = hiddenBody(request.headers);
  if (hidden !== undefined) {
    if (wants.model) throw unreadable("unsupported_media_type", hidden);
    next(chargeBySize(exchange, scopes, JSON_TYPE.test(request.headers.get("content-type") ?? "")));
    return;
  }
  const type = request.headers.get("content-type") ?? "";
  const isForm = wants.model && FORM_TYPE.test(type);
  // Uploads of files are forms, too, and may be of any size: they name no model, and whatever uses them later does.
  if (isForm && !dialectOf(request.path).goesByModel) {
    next(chargeBySize(exchange, scopes, false));
    return;
  }
  run.peekBody((first) => {
    const beginning = first === undefined ? "other" : beginningOf(first);
    const isHeld = beginning === "json" || beginning === "open" || isForm || (wants.model && FIELDS_TYPE.test(type));
    if (beginning === "foreign" && wants.model) throw unreadable("bad_request", "the body is not UTF-8");
    if (first === undefined || !isHeld) {
      if (wants.model) noteHead(exchange);
      next(first === undefined ? scopes : chargeBySize(exchange, scopes, beginning === "foreign"));
      return;
    }
    if (!wants.enforces && mayBeTooLarge(request.body)) {
      next(chargeBySize(exchange, scopes, true));
      return;
    }
    run.holdBody(MAX_LLM_BODY_BYTES, () => {
      const { body } = exchange.request;
      if (body.kind !== "bytes") next(scopes);
      else if (body.bytes.length <= SLICED_BYTES) next(finish(readCall(exchange, body.bytes, scopes, wants.model)));
      else
        inTurns(readCall(exchange, body.bytes, scopes, wants.model), () => exchange.isOver)
          .then(next)
          .catch((error) => run.fail(error));
    });
  });
}

/** The body is whole: recognises the request and arranges for its answer to be read. */
function* readCall(
  exchange: Exchange,
  bytes: Buffer,
  scopes: readonly CompiledScope[],
  needsModel: boolean,
): Steps<readonly CompiledScope[]> {
  const { request } = exchange;
  const beginning = beginningOf(bytes);
  const type = request.headers.get("content-type") ?? "";
  if (beginning === "foreign" && needsModel) throw unreadable("bad_request", "the body is not UTF-8");
  if (beginning !== "json" || (needsModel && FORM_TYPE.test(type))) {
    if (needsModel) noteFields(exchange, bytes, type);
    return chargeBySize(exchange, scopes, beginning === "foreign");
  }
  const { facts, isUnclear } = yield* detectLlmRequest(headOf(exchange), bytes);
  if (facts !== undefined) {
    if (bytes.length > SLICED_BYTES) yield* facts.count();
    exchange.facts.llm = facts;
    if (!LlmRequestFacts.isFree(facts)) readAnswer(exchange, facts);
    return scopes;
  }
  // It asks for the size of a prompt, or stores something: that costs nothing.
  if (dialectOf(request.path).free && !isUnclear) return scopes;
  // A server may read what the gateway cannot: passed on unjudged, it would be a way around the rule.
  if (isUnclear && needsModel) throw unreadable("bad_request", "the body is not one plain JSON object in UTF-8");
  return chargeBySize(exchange, scopes, isUnclear && (yield* mayNameModel(bytes)));
}

/** The model that the head names, where the body names none: of a WebSocket, of sound or of an empty body. */
function noteHead(exchange: Exchange): void {
  const { request } = exchange;
  // Such a request only reads: the list of models, one of them, a stored answer.
  if (request.body.kind === "none" && READING.has(request.method) && !request.headers.has("upgrade")) return;
  const models = modelsInHead(headOf(exchange));
  if (models.length === 0) return;
  if (request.body.kind === "none") noteFreeRequest(exchange, models);
  else noteSizedRequest(exchange, models);
}

/** The models that the fields of a form name. */
function noteFields(exchange: Exchange, bytes: Buffer, type: string): void {
  const found = new ModelNames();
  if (FORM_TYPE.test(type)) {
    const scanned = scanForm(bytes, type);
    if (!scanned.ok) throw unreadable("bad_request", scanned.reason);
    if (scanned.scan.model !== undefined) found.add(scanned.scan.model);
    for (const name of scanned.scan.formModels ?? []) found.add(name);
  } else if (FIELDS_TYPE.test(type)) modelsInQuery(bytes.toString("utf8"), found);
  for (const name of modelsInHead(headOf(exchange))) found.add(name);
  if (found.names.length > 0) noteSizedRequest(exchange, found.names);
}

const READING: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

/** Charged by the route's own limit, and by that of the gateway only if it may be an LLM call. */
function chargeBySize(
  exchange: Exchange,
  scopes: readonly CompiledScope[],
  mayBeCall: boolean,
): readonly CompiledScope[] {
  const charged = mayBeCall ? scopes : scopes.filter(({ phase }) => phase !== "gateway");
  if (!sightOf(charged, exchange).counts) return [];
  readAnswer(exchange, noteSizedRequest(exchange));
  return charged;
}

function readAnswer(exchange: Exchange, facts: LlmFacts): void {
  // An encoded answer could be read only at its end.
  exchange.request.headers.set("accept-encoding", "identity");
  exchange.observeResponse = (response: GatewayResponse) => {
    // A refusal has cost nothing, and its text is not an answer of the model.
    if (response.status < 200 || response.status >= 300) return;
    const { headers } = response;
    const tap = createUsageTap(headers.get("content-type"), headers.get("content-encoding"), (report) =>
      settleUsage(facts, report),
    );
    response.observers = [
      ...(response.observers ?? []),
      { data: (chunk) => tap.data(chunk), end: (complete) => (complete ? tap.end() : tap.abort()) },
    ];
  };
}

interface Wanted {
  /** Tokens are counted, enforced or not. */
  readonly counts: boolean;
  readonly model: boolean;
  /** Not only for limits in shadow mode, for which nothing is rejected. */
  readonly enforces: boolean;
}

function sightOf(scopes: readonly CompiledScope[], { identity: { modelAccess } }: Exchange): Wanted {
  const tokens = scopes.some(({ sight }) => sight.tokens);
  const model = modelAccess !== undefined || scopes.some(({ sight }) => sight.model);
  return { counts: tokens || scopes.some(({ sight }) => sight.watchedTokens), model, enforces: tokens || model };
}

function mayBeTooLarge(body: RequestBody): boolean {
  return body.kind === "stream" && (body.length === undefined || body.length > MAX_LLM_BODY_BYTES);
}

function unreadable(code: "bad_request" | "unsupported_media_type", what: string): GatewayError {
  return new GatewayError(code, { message: `${what}, and a rule or limit of the route must know the model` });
}
