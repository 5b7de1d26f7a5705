/**
 * Sends the parameters and the result of a call to the processors of `mcpGuardrails`, before the server gets the
 * request and before the client gets the result. Errors of servers are not sent.
 */
import type { Steps } from "../../base/sliced-work.ts";
import type { McpGuardrails, McpRejection, McpVerdict } from "../../core/mcp-guardrails.ts";
import { find, findInSteps, slice, withMembers } from "../../json/json-text.ts";
import { LISTS, unknownMethod } from "./access.ts";
import { type Failure, type InterceptedCall, type Interceptor, serverFailure } from "./call.ts";
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

type Passed = Exclude<McpVerdict, { rejection: McpRejection }>;

export const guardrailInterceptor: Interceptor = {
  request(call) {
    const { guardrails, request } = call;
    if (guardrails === undefined) return undefined;
    const { method } = request;
    if (guardrails.checksRequest(method)) return requestProblem(call, guardrails);
    // A lenient server could interpret an unknown method as one that the processors must get.
    return guardrails.checksResponse(method) || isRequestMethod(method) ? undefined : unknownMethod(method);
  },

  result(call, message) {
    const { guardrails, request } = call;
    return guardrails?.checksResponse(request.method) ? checkedResult(call, guardrails, message) : undefined;
  },
};

async function requestProblem(call: InterceptedCall, guardrails: McpGuardrails): Promise<Failure | undefined> {
  const { method } = call.request;
  const body = WITHOUT_PARAMS.has(method) ? undefined : paramsText(call.request);
  const verdict = await guardrails.checkRequest({ method, services: servicesOf(call), body });
  if (verdict.rejection) return rejectionFailure(verdict.rejection);
  try {
    changeCall(call, verdict);
    return undefined;
  } catch (error) {
    if (!(error instanceof JsonRpcProblem)) throw error;
    return unavailable(`the parameters that a service of mcpGuardrails sent are invalid: ${String(error)}`);
  }
}

function* checkedResult(
  call: InterceptedCall,
  guardrails: McpGuardrails,
  message: ServerMessage,
): Steps<Failure | Promise<ServerMessage | Failure>> {
  const span = yield* findInSteps(message.text, 0, "result");
  const release = call.targets[0] === undefined ? ignore : call.targets[0].messages.hold(message.text.length);
  if (release === undefined) return unavailable("there is no memory for another result that waits for it");
  const body = span ? slice(message.text, span) : "{}";
  return guardrails
    .checkResponse({ method: call.request.method, services: servicesOf(call), body })
    .finally(release)
    .then((verdict) => {
      if (verdict.rejection) return rejectionFailure(verdict.rejection);
      return verdict.body === undefined ? message : asResult(verdict.body);
    });
}

function servicesOf({ targets }: InterceptedCall): readonly string[] {
  return targets.map(({ name }) => name);
}

function ignore(): void {
  // Without a target, no memory is charged.
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

function changeCall(call: InterceptedCall, { body, changeHeaders }: Passed): void {
  if (body !== undefined) call.request = changedRequest(call.request, body);
  if (changeHeaders === undefined || call.headers === undefined) return;
  call.headers = call.headers.clone();
  changeHeaders(call.headers);
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
