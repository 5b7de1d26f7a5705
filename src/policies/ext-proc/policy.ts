/**
 * `extProc`: an external processor inspects and changes requests and responses, over Envoy's external processing
 * protocol (gRPC). If the processor does not respond in time, the request fails unless `failureMode` is `open`.
 */
import { z } from "zod";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, RequestBody } from "../../core/exchange.ts";
import { definePolicy, type Hooks } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import { duration, markAddress } from "../../core/schema.ts";
import { FilteredRequestBody } from "../../http/filtered-request-body.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { applyChanges, type BodyMode, type Immediate, type Modes } from "./changes.ts";
import { openProcessorClient, type ProcessorClient } from "./client.ts";
import { Processing, type ProcessingEvents } from "./processing.ts";

const DEFAULT_TIMEOUT_MS = 200;
const DEFAULT_BODY_BYTES = 2 * 1024 * 1024;
const MAX_BODY_BYTES = 32 * 1024 * 1024;
const LOG_INTERVAL_MS = 10_000;
const HOST_AND_PORT = /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/;

const headerMode = z.enum(["send", "skip"]);
const bodyMode = z.enum(["none", "buffered", "streamed"]);

const schema = z.strictObject({
  host: markAddress(z.string().regex(HOST_AND_PORT, "expected host:port of the service's gRPC address")).describe(
    "`host:port` of a service that speaks Envoy's external processing protocol v3 over gRPC.",
  ),
  processingMode: z
    .strictObject({
      requestHeaders: headerMode.default("send").describe("Whether request headers are sent. Default: send."),
      requestBody: bodyMode
        .default("none")
        .describe(
          "`buffered` sends the whole request body in one message, `streamed` sends each chunk. Default: none.",
        ),
      responseHeaders: headerMode.default("send").describe("Whether response headers are sent. Default: send."),
      responseBody: bodyMode
        .default("none")
        .describe(
          "`buffered` sends the whole response body in one message, `streamed` sends each chunk. Default: none.",
        ),
    })
    .default({ requestHeaders: "send", requestBody: "none", responseHeaders: "send", responseBody: "none" })
    .describe("The parts of requests and responses that are sent to the processor."),
  allowModeOverride: z
    .boolean()
    .default(false)
    .describe(
      "Lets the processor change `processingMode` of a request. Request bodies are then always buffered. If false, such a response is a failure. Default: false.",
    ),
  maxBodyBytes: z
    .int()
    .min(1)
    .max(MAX_BODY_BYTES)
    .default(DEFAULT_BODY_BYTES)
    .describe(
      "The largest buffered body in bytes. Larger requests get 413, larger responses become 502. Default: 2097152, at most 33554432.",
    ),
  timeout: duration()
    .default(DEFAULT_TIMEOUT_MS)
    .describe("How long each message waits for the processor. Default: 200ms."),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe(
      "What happens when the processor does not respond: `closed` rejects with 503, `open` continues without the processor.",
    ),
});

const NO_SERVICE: ProcessorClient = {
  open: () => ({
    send: () => Promise.reject(new Error("a dry run does not call the external processor")),
    close: () => undefined,
  }),
  close: () => undefined,
};

/** These responses have no body (RFC 9110 section 6.4.1). */
function hasNoBody(method: string, status: number): boolean {
  return method === "HEAD" || status === 204 || status === 304;
}

export const extProc = definePolicy({
  kind: "extProc",
  doc: "Sends requests and responses to an external processor (Envoy's external processing protocol over gRPC), which can change or reject them.",
  scopes: ["gateway", "route"],
  role: "security",
  schema,

  compile(config, env): Hooks {
    const { host, timeout, failureMode, maxBodyBytes, allowModeOverride, processingMode } = config;
    const modes: Modes = {
      requestHeaders: processingMode.requestHeaders === "send",
      requestBody: processingMode.requestBody,
      responseHeaders: processingMode.responseHeaders === "send",
      responseBody: processingMode.responseBody,
    };
    const buffersRequest = allowModeOverride || modes.requestBody === "buffered";
    const client = env.acquire(
      `extProc service ${host} ${maxBodyBytes}`,
      { isConfined: env.isConfined === true },
      () => (env.isDry ? NO_SERVICE : openProcessorClient(host, env.clock, maxBodyBytes, env.isConfined === true)),
      (closing: ProcessorClient) => closing.close(),
    );
    const count = env.metrics.counter("gateway_ext_proc_total", "Messages to external processors.", [
      "owner",
      "result",
    ]);
    const logger = env.logger.for("policies");
    const running = new WeakMap<Exchange, Processing>();
    let loggedAtMs = Number.NEGATIVE_INFINITY;

    function logFailure(reason: string): void {
      const nowMs = env.clock.monotonicMs();
      if (nowMs - loggedAtMs < LOG_INTERVAL_MS) return;
      loggedAtMs = nowMs;
      logger.warn("the external processor did not respond", { service: host, failureMode, reason });
    }

    function unavailable(error: Error): GatewayError {
      return new GatewayError("not_ready", {
        message: "the external processor is not available",
        detail: `${host}: ${error.message}`,
        headers: { "retry-after": "1" },
        cause: error,
      });
    }

    function start(exchange: Exchange): Processing {
      const events: ProcessingEvents = {
        failed(error) {
          count.labels(env.owner, "failed").add();
          logFailure(error.message);
          if (failureMode === "closed") throw unavailable(error);
          exchange.skip(`the processor did not respond: ${error.message}`);
        },
        processed(step, details) {
          count.labels(env.owner, "processed").add();
          exchange.trace?.point({ type: "policyEvent", kind: "extProc", details: { step, ...details } });
        },
      };
      const processing = new Processing(client.open(), modes, { timeoutMs: timeout, allowModeOverride, events });
      running.set(exchange, processing);
      return processing;
    }

    async function processRequest(exchange: Exchange): Promise<Reply | undefined> {
      const { request } = exchange;
      // An earlier policy can have read the body with a higher limit.
      const isTooLarge = request.body.kind === "bytes" && request.body.bytes.length > maxBodyBytes;
      if (buffersRequest && isTooLarge) throw new GatewayError("body_too_large");
      const processing = start(exchange);
      const hasBody = request.body.kind !== "none";
      if (modes.requestHeaders) {
        const answer = await processing.headers("requestHeaders", requestFields(exchange), !hasBody);
        if (answer?.immediate) return reply(exchange, answer.immediate);
        if (answer) {
          applyChanges(request.headers, answer.changes);
          if (answer.changes.body !== undefined) {
            replaceBody(exchange, answer.changes.body);
            processing.skipRequestBody();
          }
        }
      }
      const mode = processing.modes.requestBody;
      // Without an encoding, the processor and the client of a changed body see the same bytes.
      if (processing.modes.responseBody !== "none" && !processing.isOver) request.headers.delete("accept-encoding");
      if (!hasBody || mode === "none" || processing.isOver || processing.isRequestBodyDone) return undefined;
      return processRequestBody(exchange, processing, mode);
    }

    async function processRequestBody(
      exchange: Exchange,
      processing: Processing,
      mode: BodyMode,
    ): Promise<Reply | undefined> {
      const { body } = exchange.request;
      if (body.kind === "bytes") {
        const answer = await processing.body("requestBody", body.bytes, true);
        if (answer?.immediate) return reply(exchange, answer.immediate);
        if (answer) applyChanges(exchange.request.headers, answer.changes);
        if (answer?.changes.body !== undefined) replaceBody(exchange, answer.changes.body);
      } else if (body.kind === "stream" && mode === "streamed") {
        exchange.request.body = filteredBody(exchange, processing, body);
        exchange.request.headers.delete("content-length");
      }
      return undefined;
    }

    /** Header changes in response to chunks are ignored, because the headers may have been sent. */
    async function filterChunk(
      exchange: Exchange,
      processing: Processing,
      step: "requestBody" | "responseBody",
      chunk: Buffer,
      isLast: boolean,
    ): Promise<Buffer> {
      const answer = processing.isOver ? undefined : await processing.body(step, chunk, isLast);
      if (answer?.immediate) {
        exchange.interrupter?.interrupt(reply(exchange, answer.immediate));
        throw new Error("the processor responded to the request");
      }
      return answer?.changes.body ?? chunk;
    }

    function filteredBody(
      exchange: Exchange,
      processing: Processing,
      body: Extract<RequestBody, { kind: "stream" }>,
    ): RequestBody {
      const filter = (chunk: Buffer, isLast: boolean): Promise<Buffer> =>
        filterChunk(exchange, processing, "requestBody", chunk, isLast).catch((error: unknown) => {
          if (error instanceof GatewayError) exchange.interrupter?.interrupt(error);
          throw error;
        });
      const stream = new FilteredRequestBody(body.stream, {
        data: (chunk) => filter(chunk, false),
        end: () => filter(Buffer.alloc(0), true),
      });
      return { kind: "stream", stream, length: undefined, taken: false };
    }

    async function processResponse(exchange: Exchange, processing: Processing): Promise<void> {
      const { response, request } = exchange;
      if (response === undefined) return;
      const isEmpty = hasNoBody(request.method, response.status);
      if (processing.modes.responseHeaders) {
        const fields = [[":status", String(response.status)] as const, ...response.headers.entries()];
        const answer = await processing.headers("responseHeaders", fields, isEmpty);
        if (answer?.immediate) return replaceResponse(exchange, reply(exchange, answer.immediate));
        if (answer) {
          applyChanges(response.headers, answer.changes);
          response.status = answer.changes.status ?? response.status;
          if (answer.changes.body !== undefined) {
            response.replacement = answer.changes.body;
            return;
          }
        }
      }
      if (isEmpty || processing.isOver) return;
      if (processing.modes.responseBody === "buffered") await processResponseBody(exchange, processing);
      else if (processing.modes.responseBody === "streamed") {
        response.filters ??= [];
        response.filters.push({
          data: (chunk) => filterChunk(exchange, processing, "responseBody", chunk, false),
          end: () => filterChunk(exchange, processing, "responseBody", Buffer.alloc(0), true),
        });
      }
    }

    async function processResponseBody(exchange: Exchange, processing: Processing): Promise<void> {
      const { response } = exchange;
      if (response?.body === undefined) return;
      const answer = await processing.body("responseBody", response.replacement ?? response.body, true);
      if (answer?.immediate) return replaceResponse(exchange, reply(exchange, answer.immediate));
      if (answer) applyChanges(response.headers, answer.changes);
      if (answer?.changes.body !== undefined) response.replacement = answer.changes.body;
    }

    return {
      sends: true,
      bodyBytes: () => (buffersRequest ? maxBodyBytes : undefined),
      responseBodyBytes(exchange) {
        const processing = running.get(exchange);
        const status = exchange.response?.status ?? 200;
        const isNeeded = processing?.isOver === false && processing.modes.responseBody === "buffered";
        return isNeeded && !hasNoBody(exchange.request.method, status) ? maxBodyBytes : undefined;
      },
      request: processRequest,
      response(exchange) {
        const processing = running.get(exchange);
        // Responses of the gateway itself are not processed.
        if (processing === undefined || processing.isOver || exchange.response?.source !== "upstream") return;
        return processResponse(exchange, processing);
      },
      settle(exchange) {
        running.get(exchange)?.close();
      },
    };
  },
});

function requestFields({ request }: Exchange): (readonly [name: string, value: string])[] {
  return [
    [":method", request.method],
    [":path", pathAndQuery(request)],
    [":authority", request.host],
    [":scheme", request.scheme],
    ...[...request.headers.entries()].filter(([name]) => name !== "host"),
  ];
}

function replaceBody({ request }: Exchange, bytes: Buffer): void {
  request.body = { kind: "bytes", bytes };
  for (const name of ["content-encoding", "transfer-encoding", "content-length"]) request.headers.delete(name);
}

/** An immediate response replaces the backend's response. */
function replaceResponse({ response }: Exchange, { status, headers, body }: Reply): void {
  if (response === undefined) return;
  response.status = status;
  response.headers = headers;
  response.replacement = body ?? Buffer.alloc(0);
}

function reply(exchange: Exchange, { status, headers, body, details }: Immediate): Reply {
  if (status >= 400)
    exchange.failure ??= {
      code: "authorization_denied",
      source: "client",
      message: "the external processor rejected the request",
      detail: details === "" ? undefined : details,
    };
  if (body.length > 0 && !headers.has("content-type")) headers.add("content-type", "text/plain; charset=utf-8");
  return { status, headers, body };
}
