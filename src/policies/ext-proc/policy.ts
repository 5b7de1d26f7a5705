/**
 * `extProc`: an external processor inspects and changes requests and responses, over Envoy's external processing
 * protocol (gRPC). If the processor does not respond in time, the request fails unless `failureMode` is `open`.
 */
import { z } from "zod";
import { MemoryAccount, MemoryExhausted } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import { type BodyFilter, type Exchange, type RequestBody, StateKey } from "../../core/exchange.ts";
import { definePolicy, type Hooks, sending } from "../../core/policy.ts";
import { noMemoryFor } from "../../core/read-body.ts";
import type { Reply } from "../../core/reply.ts";
import { duration, hostAndPort } from "../../core/schema.ts";
import { BodyTooLarge } from "../../http/body.ts";
import { type ChunkFilter, FilteredRequestBody } from "../../http/filtered-request-body.ts";
import { withoutOwnCookies } from "../../identity/access/withheld-credentials.ts";
import { applyChanges, type BodyMode, type Immediate, type Modes } from "../../policy-parts/ext-proc/changes.ts";
import { openProcessorClient, type ProcessorClient } from "../../policy-parts/ext-proc/client.ts";
import {
  hasNoBody,
  immediateReply,
  replaceBody,
  requestFields,
  responseFields,
} from "../../policy-parts/ext-proc/messages.ts";
import { Processing, type ProcessingEvents } from "../../policy-parts/ext-proc/processing.ts";

const MESSAGE = peerInput("ext-proc/message");

const DEFAULT_TIMEOUT_MS = 200;
const DEFAULT_BODY_BYTES = 2 * 1024 * 1024;
const MAX_BODY_BYTES = 32 * 1024 * 1024;
const LOG_INTERVAL_MS = 10_000;

const headerMode = z.enum(["send", "skip"]);
const bodyMode = z.enum(["none", "buffered", "streamed", "fullDuplexStreamed"]);

const schema = z.strictObject({
  host: hostAndPort("the service's gRPC address").describe(
    "`host:port` of a service that speaks Envoy's external processing protocol v3 over gRPC.",
  ),
  processingMode: z
    .strictObject({
      requestHeaders: headerMode.default("send").describe("Whether request headers are sent. Default: send."),
      requestBody: bodyMode
        .default("none")
        .describe(
          "`buffered` sends the whole request body in one message, `streamed` sends each chunk and waits for the response to it, `fullDuplexStreamed` sends chunks without waiting. Default: none.",
        ),
      responseHeaders: headerMode.default("send").describe("Whether response headers are sent. Default: send."),
      responseBody: bodyMode
        .default("none")
        .describe(
          "`buffered` sends the whole response body in one message, `streamed` sends each chunk and waits for the response to it, `fullDuplexStreamed` sends chunks without waiting. Default: none.",
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
      "The largest buffered body in bytes, or with `fullDuplexStreamed` the largest part of a body that waits for the processor. Larger requests get 413, larger responses become 502. Default: 2097152, at most 33554432.",
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

export const extProc = definePolicy({
  kind: "extProc",
  doc: "Sends requests and responses to an external processor (Envoy's external processing protocol over gRPC), which can change or reject them.",
  scopes: ["gateway", "route"],
  role: "security",
  protection: () => "paths",
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
    const { egress } = env;
    const client = env.acquire(
      `extProc service ${host} ${maxBodyBytes}`,
      { egress },
      () => openProcessorClient(MESSAGE, host, env.clock, { maxBodyBytes, egress }),
      (closing: ProcessorClient) => closing.close(),
    );
    const count = env.metrics.counter("gateway_ext_proc_total", "Messages to external processors.", [
      "owner",
      "result",
    ]);
    const logger = env.logger.for("policies");
    const running = new StateKey<Processing>();
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
          count.labels(env.scopeName, "failed").add();
          logFailure(error.message);
          if (failureMode === "closed") throw unavailable(error);
          exchange.skip(`the processor did not respond: ${error.message}`);
        },
        processed(step, details) {
          count.labels(env.scopeName, "processed").add();
          exchange.trace?.point({ type: "policyEvent", kind: "extProc", details: { step, ...details } });
        },
      };
      const processing = new Processing(client.open(), modes, {
        clock: env.clock,
        timeoutMs: timeout,
        allowModeOverride,
        maxBodyBytes,
        memory: new MemoryAccount(env.memory.streams, exchange.client),
        events,
      });
      exchange.setState(running, processing);
      return processing;
    }

    async function processRequest(exchange: Exchange): Promise<Reply | undefined> {
      const { request } = exchange;
      // An earlier policy can have read the body with a higher limit.
      const isTooLarge = request.body.kind === "bytes" && request.body.bytes.length > maxBodyBytes;
      const sendsWhole = buffersRequest || modes.requestBody === "fullDuplexStreamed";
      if (sendsWhole && isTooLarge) throw new GatewayError("body_too_large");
      const processing = start(exchange);
      const { body } = request;
      if (modes.requestHeaders && modes.requestBody === "fullDuplexStreamed" && body.kind !== "none")
        return processDuplexRequest(exchange, processing, body);
      if (modes.requestHeaders) {
        const answer = await processing.headers("requestHeaders", sentFields(exchange), body.kind === "none");
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
      leaveUnencoded(exchange, processing);
      if (body.kind === "none" || mode === "none" || processing.isOver || processing.isRequestBodyDone)
        return undefined;
      return processRequestBody(exchange, processing, mode);
    }

    /** The body is sent without waiting for the response to the headers. */
    async function processDuplexRequest(
      exchange: Exchange,
      processing: Processing,
      body: Exclude<RequestBody, { kind: "none" }>,
    ): Promise<Reply | undefined> {
      const { request } = exchange;
      let filtered: RequestBody | undefined;
      let replaced: Buffer | undefined;
      let answer: Awaited<ReturnType<Processing["headers"]>>;
      if (body.kind === "bytes") {
        const whole = await processing.whole(sentFields(exchange), body.bytes);
        answer = whole?.headers;
        replaced = whole?.body;
      } else {
        const answering = processing.headers("requestHeaders", sentFields(exchange), false, { isDuplex: true });
        answering.catch(() => undefined);
        let isWaiting = true;
        let fail: (error: GatewayError) => void = () => undefined;
        const failing = new Promise<never>((_resolve, reject) => {
          fail = reject;
        });
        failing.catch(() => undefined);
        // While the hook waits for the response to the headers, it reports the outcome itself.
        const duplex = filteredBody(exchange, processing, body, "fullDuplexStreamed", (outcome) => {
          if (!isWaiting) exchange.interrupter?.interrupt(outcome);
          else if (outcome instanceof GatewayError) fail(outcome);
        });
        exchange.interrupter?.askForBody();
        // Starts to read the body before the backend does.
        duplex.stream.read(0);
        try {
          answer = await Promise.race([answering, failing]);
        } catch (error) {
          duplex.stream.destroy();
          throw error;
        }
        isWaiting = false;
        if (answer?.immediate !== undefined || answer?.changes.replacesAll === true) duplex.stream.destroy();
        filtered = duplex.body;
      }
      if (answer?.immediate) return reply(exchange, answer.immediate);
      if (answer) applyChanges(request.headers, answer.changes);
      leaveUnencoded(exchange, processing);
      replaced = answer?.changes.body ?? replaced;
      if (replaced !== undefined) replaceBody(exchange, replaced);
      else if (filtered !== undefined) {
        request.body = filtered;
        request.headers.delete("content-length");
      }
      return undefined;
    }

    /** Without an encoding, the processor and the client of a changed body see the same bytes. */
    function leaveUnencoded({ request }: Exchange, processing: Processing): void {
      if (processing.modes.responseBody !== "none" && !processing.isOver) request.headers.delete("accept-encoding");
    }

    async function processRequestBody(
      exchange: Exchange,
      processing: Processing,
      mode: BodyMode,
    ): Promise<Reply | undefined> {
      const { body } = exchange.request;
      if (body.kind === "bytes") {
        const answer = await (mode === "fullDuplexStreamed"
          ? processing.wholeBody(body.bytes)
          : processing.body("requestBody", body.bytes, true));
        if (answer?.immediate) return reply(exchange, answer.immediate);
        if (answer) applyChanges(exchange.request.headers, answer.changes);
        if (answer?.changes.body !== undefined) replaceBody(exchange, answer.changes.body);
      } else if (body.kind === "stream" && (mode === "streamed" || mode === "fullDuplexStreamed")) {
        const interrupt: Interrupt = (outcome) => exchange.interrupter?.interrupt(outcome);
        exchange.request.body = filteredBody(exchange, processing, body, mode, interrupt).body;
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

    /** Sends the chunks without waiting for the responses, whose bodies are passed to `emit`. */
    function duplexFilter(
      exchange: Exchange,
      processing: Processing,
      step: "requestBody" | "responseBody",
      interrupt: Interrupt,
    ): BodyFilter {
      let duplex: ReturnType<Processing["duplex"]> | undefined;
      const passed = async (result: Promise<Buffer | Immediate> | undefined): Promise<Buffer> => {
        const bytes = await (result ?? Buffer.alloc(0));
        if (Buffer.isBuffer(bytes)) return bytes;
        interrupt(reply(exchange, bytes));
        throw new Error("the processor responded to the request");
      };
      return {
        start(emit) {
          duplex = processing.duplex(step, emit);
        },
        data: (chunk) => passed(duplex?.send(chunk)).catch((error: unknown) => Promise.reject(tooLarge(step, error))),
        end: () => passed(duplex?.end()),
      };
    }

    function filteredBody(
      exchange: Exchange,
      processing: Processing,
      body: Extract<RequestBody, { kind: "stream" }>,
      mode: "streamed" | "fullDuplexStreamed",
      interrupt: Interrupt,
    ): { readonly stream: FilteredRequestBody; readonly body: RequestBody } {
      const interrupting = (result: Promise<Buffer>): Promise<Buffer> =>
        result.catch((error: unknown) => {
          if (error instanceof GatewayError) interrupt(error);
          throw error;
        });
      const duplex = mode === "streamed" ? undefined : duplexFilter(exchange, processing, "requestBody", interrupt);
      const filter: ChunkFilter = duplex ?? {
        data: (chunk) => filterChunk(exchange, processing, "requestBody", chunk, false),
        end: () => filterChunk(exchange, processing, "requestBody", Buffer.alloc(0), true),
      };
      const stream = new FilteredRequestBody(body.stream, {
        start: (emit) =>
          filter.start?.((bytes) => {
            // The backend does not read, and the processor sends more than it got.
            if (stream.readableLength + bytes.length > maxBodyBytes) interrupt(new GatewayError("body_too_large"));
            else emit(bytes);
          }),
        data: (chunk) => interrupting(filter.data(chunk)),
        end: () => interrupting(filter.end()),
      });
      return { stream, body: { kind: "stream", stream, length: undefined, taken: false } };
    }

    async function processResponse(exchange: Exchange, processing: Processing): Promise<void> {
      const { response, request } = exchange;
      if (response === undefined) return;
      const isEmpty = hasNoBody(request.method, response.status);
      if (processing.modes.responseHeaders) {
        const answer = await processing.headers("responseHeaders", responseFields(response), isEmpty);
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
      else if (processing.modes.responseBody !== "none") {
        response.filters ??= [];
        response.filters.push(
          processing.modes.responseBody === "fullDuplexStreamed"
            ? duplexFilter(exchange, processing, "responseBody", (outcome) => exchange.interrupter?.interrupt(outcome))
            : {
                data: (chunk) => filterChunk(exchange, processing, "responseBody", chunk, false),
                end: () => filterChunk(exchange, processing, "responseBody", Buffer.alloc(0), true),
              },
        );
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
      shape: sending(env, "extProc", {
        bodyBytes: () => (buffersRequest ? maxBodyBytes : undefined),
        head: processRequest,
      }),
      response: {
        bodyBytes(exchange) {
          const processing = exchange.state(running);
          const status = exchange.response?.status ?? 200;
          const isNeeded = processing?.isOver === false && processing.modes.responseBody === "buffered";
          return isNeeded && !hasNoBody(exchange.request.method, status) ? maxBodyBytes : undefined;
        },
        head(exchange) {
          const processing = exchange.state(running);
          // Responses of the gateway itself are not processed.
          if (processing === undefined || processing.isOver || exchange.response?.source !== "upstream") return;
          return processResponse(exchange, processing);
        },
      },
      settle(exchange) {
        exchange.state(running)?.close();
      },
    };
  },
});

function sentFields(exchange: Exchange): ReturnType<typeof requestFields> {
  return requestFields(exchange, withoutOwnCookies(exchange.request.headers));
}

/** Ends the request while its body is forwarded. */
type Interrupt = (outcome: Reply | GatewayError) => void;

function tooLarge(step: "requestBody" | "responseBody", error: unknown): unknown {
  if (error instanceof MemoryExhausted) return noMemoryFor(error);
  if (!(error instanceof BodyTooLarge)) return error;
  if (step === "requestBody") return new GatewayError("body_too_large");
  return new GatewayError("backend_response_invalid", { detail: error.message });
}

/** An immediate response replaces the backend's response. */
function replaceResponse({ response }: Exchange, { status, headers, body }: Reply): void {
  if (response === undefined) return;
  response.status = status;
  response.headers = headers;
  response.replacement = body ?? Buffer.alloc(0);
}

function reply(exchange: Exchange, immediate: Immediate): Reply {
  return immediateReply(exchange, immediate, "the external processor rejected the request");
}
