/**
 * Forwards requests that the gateway does not read, such as files and WebSockets, to the first target.
 */
import type { BackendRun, ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { asksForWebSocket } from "../http/headers.ts";
import type { HttpCall } from "../http/http-client.ts";
import { slashedName } from "../http/request-path.ts";
import { CredentialError } from "../identity/cloud/renewable.ts";
import { hasGuards, unreadRulesOf } from "./guards/prompt-rules.ts";
import type { ModelTable } from "./models/model-table.ts";
import { ModelNameError, withQuery } from "./models/providers.ts";
import { UPLOAD } from "./prepare-call.ts";
import { NativeResponse } from "./provider-response.ts";
import { detectDialect, parseModelsPath } from "./request/dialect.ts";
import { UNREADABLE_STREAM } from "./request/llm-errors.ts";
import { createResponseGuards } from "./response-guards.ts";
import { PROMPT_ONLY, type ResponseSettlement, type Settlement } from "./settlement.ts";
import { signedRequest, upstreamRequest, withoutKey } from "./upstream-request.ts";

const VERSION = /^.*?\/(?:v1|v1beta)(?=\/|$)/;

export function forwardUnread(
  table: ModelTable,
  exchange: Exchange,
  call: ResponseReceiver,
  settlement: Settlement | undefined,
): BackendRun {
  const target = table.targets[0];
  const { request } = exchange;
  if (!target) throw new GatewayError("no_backend");
  // With several targets, the request does not identify the account.
  if (target.credential.kind === "aws" || (table.isClosed && table.targets.length > 1))
    throw new GatewayError("not_found", { message: "only model calls are supported here" });
  const upgrade = asksForWebSocket(request.method, request.headers) ? "websocket" : undefined;
  const rules = unreadRulesOf(exchange);
  if (upgrade && hasGuards(rules))
    throw new GatewayError("bad_request", { message: "the guards of this route cannot read a WebSocket: use HTTP" });
  const guards = createResponseGuards({ rules, model: undefined }, detectDialect(request.path), exchange);
  if (guards === "unreadable") throw new GatewayError("bad_request", { message: UNREADABLE_STREAM.message });
  const guarded = guards(call);
  const models = parseModelsPath(request.path);
  const suffix = models
    ? `/models${models.name === undefined ? "" : `/${modelName(models.name)}`}`
    : request.path.replace(VERSION, "");
  const query = withoutKey(request.query);
  // The provider's base path does not apply to Google's WebSocket paths, and upload paths have `/upload` before it.
  const isWebsocketPath = upgrade !== undefined && request.path.startsWith("/ws/");
  const upload = UPLOAD.test(request.path) ? "/upload" : "";
  const own = isWebsocketPath ? request.path : `${upload}${target.basePath}${suffix}`;
  const path = withQuery(target.pathOverride ?? own, query);
  const { body } = request;
  const sent = upstreamRequest(exchange, target, path, body.kind === "bytes" ? [body.bytes] : [], undefined);
  if (body.kind === "stream") {
    body.taken = true;
    if (body.length === undefined) sent.headers.delete("content-length");
    else sent.headers.set("content-length", String(body.length));
  } else if (body.kind === "none") sent.headers.delete("content-length");
  if (exchange.attributes.llm) exchange.attributes.llm.provider = target.provider.name;
  const response = new NativeResponse(guarded.receiver, "opaque", settlement ?? NOT_COUNTED, false);
  let hasHead = false;
  const send = (): HttpCall => {
    const outgoing = body.kind === "stream" ? { ...sent, body: body.stream } : upgrade ? { ...sent, upgrade } : sent;
    const scheme = target.address.protocol;
    const served = { provider: target.provider.name, model: undefined };
    call.attempt(target.display, exchange.trace && { over: "http", scheme, request: outgoing }, served);
    return target.upstream.send(outgoing, {
      head: (status, headers) => {
        hasHead = true;
        guarded.receiver.received(status, headers);
        response.head(status, headers);
      },
      data: (chunk) => response.data(chunk),
      end: (trailers) => response.end(trailers),
      fail: (error) => response.fail(error),
      upgraded: (status, headers, socket) => call.upgraded(status, headers, socket),
    });
  };
  const signing = target.sign?.(signedRequest(sent, target, []));
  let run: BackendRun | undefined;
  guarded.setUpstream({ abort: () => run?.abort(), resume: () => run?.resume() });
  run = signing === undefined ? send() : sendLater(signing, send, call);
  return {
    abort() {
      run.abort();
      if (hasHead) response.abort();
      else settlement?.used(PROMPT_ONLY);
    },
    resume: () => run.resume(),
  };
}

function modelName(name: string): string {
  const segment = slashedName(name, "%2F");
  if (segment === undefined) throw new GatewayError("bad_request", { message: new ModelNameError().message });
  return segment;
}

function sendLater(signing: Promise<void>, send: () => HttpCall, call: ResponseReceiver): BackendRun {
  let http: HttpCall | undefined;
  let aborted = false;
  signing
    .then(() => {
      if (!aborted) http = send();
    })
    .catch((error) => call.fail(error instanceof CredentialError ? notReady(error) : error));
  return {
    abort() {
      aborted = true;
      http?.abort();
    },
    resume: () => http?.resume(),
  };
}

function notReady(error: CredentialError): GatewayError {
  const headers = { "retry-after": String(error.retryAfterSeconds) };
  return new GatewayError("not_ready", { message: error.message, headers, cause: error });
}

function ignore(): void {
  // Requests without LLM attributes are not settled.
}

const NOT_COUNTED: ResponseSettlement = { firstByte: ignore, used: ignore, unused: ignore };
