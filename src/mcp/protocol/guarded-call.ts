/**
 * Sends the parameters and the result of a call to the processors of `mcpGuardrails`, before the server gets the
 * request and before the client gets the result. Errors of servers are not sent.
 */
import { surface } from "../../base/errors.ts";
import type { ServerMessages } from "../../base/memory-budget.ts";
import type { McpGuardrails, McpRejection, McpVerdict } from "../../core/mcp-guardrails.ts";
import { find, findInSteps, slice, withMembers } from "../../json/json-text.ts";
import { LISTS, unknownMethod } from "./access.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  mapResult,
  NO_CALL,
  runMessageSteps,
  serverFailure,
} from "./call.ts";
import {
  asResult,
  type ClientRequest,
  INTERNAL_ERROR,
  JsonRpcProblem,
  parseClientMessage,
  requestText,
  type ServerMessage,
} from "./json-rpc.ts";
import { isRequestMethod } from "./message-rules.ts";
import { CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION } from "./protocol-version.ts";

/** The processors do not get the parameters of these methods, which concern all targets. */
const WITHOUT_PARAMS: ReadonlySet<string> = new Set([
  ...Object.keys(LISTS),
  ...["initialize", "server/discover", "ping", "logging/setLevel"],
]);

/** Replicas and resumed sessions repeat these requests as the client sent them, so their parameters cannot change. */
const FIXED_PARAMS: ReadonlySet<string> = new Set(["resources/subscribe", "resources/unsubscribe"]);

/** The gateway reads these members of `_meta`, so they stay as the client sent them. */
const KEPT_META = [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, "progressToken"];

export interface GuardedTarget {
  readonly name: string;
  readonly messages: ServerMessages;
}

/**
 * Calls `run` when the processors let the request pass, with the request that they may have changed. `targets` get the
 * request. Without processors for the method, it calls `run` immediately with the same call.
 */
export function runGuarded(
  call: Call,
  guardrails: McpGuardrails | undefined,
  targets: readonly GuardedTarget[],
  run: (call: Call) => CallHandle,
): CallHandle {
  if (guardrails === undefined) return run(call);
  const { request } = call;
  const { method } = request;
  const checksRequest = guardrails.checksRequest(method);
  const checksResponse = guardrails.checksResponse(method);
  if (!checksRequest && !checksResponse) {
    if (isRequestMethod(method)) return run(call);
    // A lenient server could interpret an unknown method as one that the processors must get.
    call.failed(unknownMethod(method));
    return NO_CALL;
  }
  const running: Running = { current: NO_CALL, isCancelled: false };
  const services = targets.map(({ name }) => name);
  const hold = (bytes: number) => (targets[0] === undefined ? () => undefined : targets[0].messages.hold(bytes));
  const guarded = checksResponse ? guardedResult(call, guardrails, services, running, hold) : call;
  if (!checksRequest) running.current = run(guarded);
  else {
    const body = WITHOUT_PARAMS.has(method) ? undefined : paramsText(request);
    afterVerdict(guardrails.checkRequest({ method, services, body }), guarded, running, (verdict) => {
      running.current = run(changedCall(guarded, verdict));
    });
  }
  return {
    cancel: (reason) => {
      running.isCancelled = true;
      running.current.cancel(reason);
    },
  };
}

interface Running {
  current: CallHandle;
  isCancelled: boolean;
}

type Passed = Exclude<McpVerdict, { rejection: McpRejection }>;

function guardedResult(
  call: Call,
  guardrails: McpGuardrails,
  services: readonly string[],
  running: Running,
  hold: ServerMessages["hold"],
): Call {
  const { method } = call.request;
  const check = (message: ServerMessage, body: string): void => {
    const release = hold(message.text.length);
    if (release === undefined) call.failed(unavailable("there is no memory for another result that waits for it"));
    else
      afterVerdict(guardrails.checkResponse({ method, services, body }).finally(release), call, running, (verdict) =>
        call.answered(verdict.body === undefined ? message : asResult(verdict.body)),
      );
  };
  return {
    ...mapResult(call, (message) => message),
    answered(message) {
      if (message.kind !== "result") call.answered(message);
      else
        runMessageSteps(
          message,
          () => findInSteps(message.text, 0, "result"),
          (span) => check(message, span ? slice(message.text, span) : "{}"),
          (failure) => call.failed(failure),
        );
    },
  };
}

function afterVerdict(
  checking: Promise<McpVerdict>,
  call: Call,
  running: Running,
  passed: (verdict: Passed) => void,
): void {
  checking
    .then((verdict) => {
      if (running.isCancelled) return;
      if (verdict.rejection) call.failed(rejectionFailure(verdict.rejection));
      else passed(verdict);
    })
    .catch((error: unknown) => {
      if (!(error instanceof JsonRpcProblem)) surface(error);
      if (running.isCancelled) return;
      call.failed(unavailable(`the parameters that a service of mcpGuardrails sent are invalid: ${String(error)}`));
    });
}

function unavailable(detail: string): Failure {
  return { ...serverFailure("the MCP guardrail service is not available"), detail };
}

/** Status 200, because SDKs hide the body of a response with an error status. */
function rejectionFailure({ code, message, data, detail, isFailure }: McpRejection): Failure {
  const error = isFailure ? "backend_unavailable" : "authorization_denied";
  return { code, message, status: 200, ...(data === undefined ? {} : { data }), error, detail };
}

function paramsText({ text }: ClientRequest): string | undefined {
  const span = find(text, 0, "params");
  return span && slice(text, span);
}

function changedCall(call: Call, { body, changeHeaders }: Passed): Call {
  if (body === undefined && changeHeaders === undefined) return call;
  const headers = changeHeaders && call.headers?.clone();
  if (headers) changeHeaders?.(headers);
  const request = body === undefined ? call.request : changedRequest(call.request, body);
  return { ...mapResult(call, (message) => message), request, headers: headers ?? call.headers };
}

/** Throws `JsonRpcProblem` if a client could not send these parameters either. */
function changedRequest(request: ClientRequest, params: string): ClientRequest {
  if (FIXED_PARAMS.has(request.method))
    throw new JsonRpcProblem(INTERNAL_ERROR, `the parameters of ${request.method} cannot change`);
  const changed = parseClientMessage(requestText(request.id, request.method, withKeptMeta(request, params)));
  if (changed.kind !== "request") throw new JsonRpcProblem(INTERNAL_ERROR, "the changed message is not a request");
  return changed;
}

function withKeptMeta({ text }: ClientRequest, params: string): string {
  const meta = find(text, 0, "params", "_meta");
  const newMeta = find(params, 0, "_meta");
  if (!meta && !newMeta) return params;
  const kept = new Map<string, string | undefined>();
  for (const key of KEPT_META) {
    const value = find(text, 0, "params", "_meta", key);
    kept.set(key, value && slice(text, value));
  }
  const written = newMeta ? withMembers(params, newMeta, kept) : withMembers(text, meta, kept);
  return withMembers(params, find(params, 0), new Map([["_meta", written]]));
}
