/**
 * Runs the rules and limits that depend on the body, after the backend has parsed it and before the backend is called.
 * The rules run for each attempt, and the limits are charged once. A plain HTTP backend does not parse bodies, so
 * `inspectBody` reads what token limits, model rules, and keys with a model list need: a request that names a model
 * counts as an LLM call, and its usage is read from the response.
 */

import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayResponse, RequestBody } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/policy.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";
import { hiddenBody } from "../../http/charset.ts";
import {
  classifyBodyStart,
  detectLlmRequest,
  hostCost,
  mayNameModel,
  modelsInHead,
  requestHead,
} from "../../llm/request/detect-llm-request.ts";
import { type Cost, detectDialect } from "../../llm/request/dialect.ts";
import { LlmRequestAttributes, noteSizedRequest, noteUncountedRequest } from "../../llm/request/llm-call.ts";
import { ModelNames, modelsInQuery, scanForm } from "../../llm/request/read-request.ts";
import { createUsageTap, settleUsage } from "../../llm/usage/response-usage.ts";
import { type HookRun, policiesOf, type RequestRun, runAdmission, runBodyHooks } from "./run-hooks.ts";

export interface InnerRun extends RequestRun {
  readonly rules: BodyRules;
  enter(scope: CompiledScope): void;
  pass(scope: CompiledScope, list: "access" | "shape", next: () => void): void;
}

/** Runs the policies of scopes inside a backend, for example of one model. */
export function passInner(run: InnerRun, scopes: readonly CompiledScope[], call: () => void): void {
  const passFrom = (at: number): void => {
    const scope = scopes[at];
    if (scope === undefined) call();
    else passScope(run, scope, () => passFrom(at + 1));
  };
  passFrom(0);
}

function passScope(run: InnerRun, scope: CompiledScope, next: () => void): void {
  const { rules, isNew } = run.rules.inside(scope);
  run.enter(scope);
  const reach = (): void => run.pass(scope, "shape", () => rules.pass([scope], [scope], next));
  run.pass(scope, "access", () => {
    if (isNew && scope.admit.head.length > 0) runAdmission(run, "head", scope.admit.head, reach);
    else reach();
  });
}

export class BodyRules {
  readonly #run: HookRun;
  #isAdmitted = false;
  #isCharged = false;
  #inside: Map<CompiledScope, BodyRules> | undefined;

  constructor(run: HookRun) {
    this.#run = run;
  }

  /** The token limits of the `charged` scopes count the call. */
  pass(entered: readonly CompiledScope[], charged: readonly CompiledScope[], next: () => void): void {
    if (this.#judge(entered)) this.admit(entered, () => this.#charge(charged, next));
  }

  /** Called before a response that replaces the backend's. Token limits are not charged. */
  passUncalled(entered: readonly CompiledScope[], next: () => void): void {
    if (this.#judge(entered)) this.admit(entered, next);
  }

  /** Charges the limits whose key reads the body, in the first call only. */
  admit(entered: readonly CompiledScope[], next: () => void): void {
    const limits = this.#isAdmitted ? [] : policiesOf(entered, ({ admit }) => admit.body);
    this.#isAdmitted = true;
    if (limits.length === 0) next();
    else runAdmission(this.#run, "body", limits, next);
  }

  /**
   * Returns the body rules for a scope inside the backend. `isNew` is true if no earlier attempt entered the scope.
   */
  inside(scope: CompiledScope): { readonly rules: BodyRules; readonly isNew: boolean } {
    this.#inside ??= new Map();
    const known = this.#inside.get(scope);
    const rules = known ?? new BodyRules(this.#run);
    this.#inside.set(scope, rules);
    return { rules, isNew: known === undefined };
  }

  #judge(entered: readonly CompiledScope[]): boolean {
    return runBodyHooks(
      this.#run,
      policiesOf(entered, ({ body }) => body),
    );
  }

  #charge(charged: readonly CompiledScope[], next: () => void): void {
    const isIdle = this.#isCharged || this.#run.exchange.attributes.llm === undefined;
    const limits = isIdle ? [] : policiesOf(charged, ({ admit }) => admit.call);
    if (limits.length === 0) {
      next();
      return;
    }
    this.#isCharged = true;
    runAdmission(this.#run, "call", limits, next);
  }
}

const MAX_LLM_BODY_BYTES = 32 * 1024 * 1024;

const JSON_TYPE = /^\s*(?:$|application\/(?:[\w.-]+\+)?json\b)/i;
const FORM_TYPE = /^\s*multipart\/form-data\b/i;
const FIELDS_TYPE = /^\s*application\/x-www-form-urlencoded\b/i;

export interface InspectingRun extends RequestRun {
  /**
   * Passes the first chunk of the body to `next` without consuming it. The chunk is undefined if the body is empty.
   */
  peekBody(next: (first: Buffer | undefined) => void): void;
}

/** Passes the scopes whose token limits count the request to `next`. */
export function inspectBody(
  run: InspectingRun,
  scopes: readonly CompiledScope[],
  next: (charged: readonly CompiledScope[]) => void,
): void {
  const { exchange } = run;
  const { request, attributes } = exchange;
  const needs = combinedNeeds(scopes, exchange);
  // After an LLM call was found, a second attempt skips this step.
  if (attributes.backend?.type !== "static" || attributes.llm !== undefined || !(needs.counts || needs.model)) {
    next(scopes);
    return;
  }
  if (request.body.kind === "none") {
    if (needs.model) noteHead(exchange);
    next(chargeBodiless(exchange, scopes));
    return;
  }
  const hidden = hiddenBody(request.headers);
  if (hidden !== undefined) {
    if (needs.model) throw unreadable("unsupported_media_type", hidden);
    next(chargeBySize(exchange, scopes, JSON_TYPE.test(request.headers.get("content-type") ?? "")));
    return;
  }
  const type = request.headers.get("content-type") ?? "";
  const isForm = needs.model && FORM_TYPE.test(type);
  // A form for an endpoint that runs no model, such as a file upload, may have any size.
  if (isForm && !detectDialect(request.path).runsRequestedModel) {
    next(chargeBySize(exchange, scopes, false));
    return;
  }
  run.peekBody((first) => {
    const beginning = first === undefined ? "other" : classifyBodyStart(first);
    const isHeld = beginning === "json" || beginning === "open" || isForm || (needs.model && FIELDS_TYPE.test(type));
    if (beginning === "foreign" && needs.model) throw unreadable("bad_request", "the body is not UTF-8");
    if (first === undefined || !isHeld) {
      if (needs.model) noteHead(exchange);
      next(
        first === undefined
          ? chargeBodiless(exchange, scopes)
          : chargeBySize(exchange, scopes, beginning === "foreign"),
      );
      return;
    }
    if (!needs.enforces && mayBeTooLarge(request.body)) {
      next(chargeBySize(exchange, scopes, true));
      return;
    }
    run.holdBody(MAX_LLM_BODY_BYTES, () => {
      const { body } = exchange.request;
      if (body.kind !== "bytes") next(scopes);
      else if (body.bytes.length <= SLICED_BYTES) next(finish(readCall(exchange, body.bytes, scopes, needs.model)));
      else
        runInSlices(readCall(exchange, body.bytes, scopes, needs.model), () => exchange.isOver)
          .then(next)
          .catch((error) => run.fail(error));
    });
  });
}

function* readCall(
  exchange: Exchange,
  bytes: Buffer,
  scopes: readonly CompiledScope[],
  needsModel: boolean,
): Steps<readonly CompiledScope[]> {
  const { request } = exchange;
  const beginning = classifyBodyStart(bytes);
  const type = request.headers.get("content-type") ?? "";
  if (beginning === "foreign" && needsModel) throw unreadable("bad_request", "the body is not UTF-8");
  if (beginning !== "json" || (needsModel && FORM_TYPE.test(type))) {
    if (needsModel) noteFields(exchange, bytes, type);
    return chargeBySize(exchange, scopes, beginning === "foreign");
  }
  const { attributes, isUnclear } = yield* detectLlmRequest(requestHead(exchange), bytes);
  if (attributes !== undefined) {
    if (bytes.length > SLICED_BYTES) yield* attributes.count();
    exchange.attributes.llm = attributes;
    if (LlmRequestAttributes.costOf(attributes) !== "free") observeUsage(exchange, attributes);
    return scopes;
  }
  // Such a request is free, for example if it counts tokens.
  if (!isUnclear && costAtHost(exchange) === "free") return scopes;
  // A server may be able to parse a body that the gateway cannot, so forwarding it could bypass the rule.
  if (isUnclear && needsModel) throw unreadable("bad_request", "the body is not one plain JSON object in UTF-8");
  return chargeBySize(exchange, scopes, isUnclear && (yield* mayNameModel(bytes)));
}

/** Handles a model in the head if the body names none, for example for a WebSocket, audio, or an empty body. */
function noteHead(exchange: Exchange): void {
  const { request } = exchange;
  // Such a request only reads or deletes, for example the list of models or a stored response.
  if (request.body.kind === "none" && READING.has(request.method) && !request.headers.has("upgrade")) return;
  const models = modelsInHead(requestHead(exchange));
  if (models.length === 0) return;
  const cost = costAtHost(exchange);
  if (request.body.kind === "none") noteUncountedRequest(exchange, cost === "metered" ? "free" : cost, models);
  else noteSizedRequest(exchange, cost, models);
}

function noteFields(exchange: Exchange, bytes: Buffer, type: string): void {
  const found = new ModelNames();
  if (FORM_TYPE.test(type)) {
    const scanned = scanForm(bytes, type);
    if (!scanned.ok) throw unreadable("bad_request", scanned.reason);
    if (scanned.scan.model !== undefined) found.add(scanned.scan.model);
    for (const name of scanned.scan.formModels ?? []) found.add(name);
  } else if (FIELDS_TYPE.test(type)) modelsInQuery(bytes.toString("utf8"), found);
  for (const name of modelsInHead(requestHead(exchange))) found.add(name);
  if (found.names.length > 0) noteSizedRequest(exchange, costAtHost(exchange), found.names);
}

const READING: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

/** Limits of the gateway charge the request only if it may be an LLM call. */
function chargeBySize(
  exchange: Exchange,
  scopes: readonly CompiledScope[],
  mayBeCall: boolean,
): readonly CompiledScope[] {
  const charged = mayBeCall ? scopes : scopes.filter(({ phase }) => phase !== "gateway");
  if (!combinedNeeds(charged, exchange).counts) return [];
  const cost = costAtHost(exchange);
  // Forms and other bodies that cannot be read are charged by size, even if the endpoint is free.
  observeUsage(exchange, noteSizedRequest(exchange, cost === "free" ? "metered" : cost));
  return charged;
}

/** A request without a body is charged only if it may run a model nevertheless, such as a WebSocket. */
function chargeBodiless(exchange: Exchange, scopes: readonly CompiledScope[]): readonly CompiledScope[] {
  return costAtHost(exchange) === "unmetered" ? chargeBySize(exchange, scopes, false) : scopes;
}

function costAtHost({ request }: Exchange): Cost {
  return hostCost(request, request.headers.has("upgrade"));
}

function observeUsage(exchange: Exchange, attributes: LlmAttributes): void {
  // Asks for an unencoded response, so that its usage can be read.
  exchange.request.headers.set("accept-encoding", "identity");
  exchange.observeResponse = (response: GatewayResponse) => {
    // A response without a 2xx status is not a model response.
    if (response.status < 200 || response.status >= 300) return;
    const { headers } = response;
    const tap = createUsageTap(headers.get("content-type"), headers.get("content-encoding"), (report) =>
      settleUsage(attributes, report),
    );
    response.observers = [
      ...(response.observers ?? []),
      { data: (chunk) => tap.data(chunk), end: (complete) => (complete ? tap.end() : tap.abort()) },
    ];
  };
}

interface Needs {
  /** Tokens are counted by enforced limits or by limits in shadow mode. */
  readonly counts: boolean;
  readonly model: boolean;
  /** The value is false if only limits in shadow mode need the body, because they reject nothing. */
  readonly enforces: boolean;
}

function combinedNeeds(scopes: readonly CompiledScope[], { identity: { modelAccess } }: Exchange): Needs {
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
