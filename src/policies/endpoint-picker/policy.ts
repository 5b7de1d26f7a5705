/**
 * `endpointPicker`: an endpoint picker of the Gateway API Inference Extension selects the server of a `service` backend
 * for each request, over Envoy's external processing protocol (gRPC) with full-duplex bodies. The gateway sends the
 * request only to addresses of the backend. If the picker fails, the request fails unless `failureMode` is `open`. After
 * the selection, the picker gets the response, and its failure no longer affects the request.
 */

import { z } from "zod";
import { MemoryAccount } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import { type BodyFilter, type Exchange, type GatewayResponse, StateKey } from "../../core/exchange.ts";
import { definePolicy, type Hooks, sending } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import { duration, hostAndPort } from "../../core/schema.ts";
import { applyChanges, type Changes, type Modes } from "../../policy-parts/ext-proc/changes.ts";
import {
  hasNoBody,
  immediateReply,
  replaceBody,
  requestFields,
  responseFields,
} from "../../policy-parts/ext-proc/messages.ts";
import { type Answer, Processing } from "../../policy-parts/ext-proc/processing.ts";
import type { WireStruct } from "../../policy-parts/ext-proc/protocol.ts";
import { readServiceTls, serviceTls } from "../../policy-parts/service-tls.ts";
import { openPickerClients, type PickerClients } from "./picker-clients.ts";

const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_BODY_BYTES = 10 * 1024 * 1024;
const MAX_BODY_BYTES = 32 * 1024 * 1024;
const MAX_PICKED = peerInput("endpoint-picker/message").maxItems;
const LOG_INTERVAL_MS = 10_000;
/** A request tries at most this many addresses of the picker. */
const PICKER_TRIES = 3;
/** The gRPC status of a server that cannot be reached. */
const UNAVAILABLE = 14;

const PICKED = "x-gateway-destination-endpoint";
const SERVED = "x-gateway-destination-endpoint-served";
const NAMESPACE = "envoy.lb";

/** The protocol requires these modes. */
const MODES: Modes = {
  requestHeaders: true,
  requestBody: "fullDuplexStreamed",
  responseHeaders: true,
  responseBody: "fullDuplexStreamed",
};

const schema = z
  .strictObject({
    host: hostAndPort("the picker's gRPC address").optional().describe("`host:port` of the endpoint picker."),
    service: z
      .string()
      .min(1)
      .max(400)
      .optional()
      .describe("In a cluster, `namespace/name:port` of the picker's Service, instead of `host`."),
    tls: serviceTls.optional().describe("Uses TLS to the picker. Default: no TLS."),
    failureMode: z
      .enum(["closed", "open"])
      .default("closed")
      .describe(
        "What happens when the picker does not select an endpoint: `closed` rejects with 503, `open` uses any endpoint of the backend.",
      ),
    timeout: duration()
      .default(DEFAULT_TIMEOUT_MS)
      .describe("How long a request waits for the picker after its body was sent. Default: 30s."),
    maxBodyBytes: z
      .int()
      .min(1)
      .max(MAX_BODY_BYTES)
      .default(DEFAULT_BODY_BYTES)
      .describe(
        "The largest request body in bytes, which the gateway buffers. Larger requests get 413. Default: 10485760, at most 33554432.",
      ),
  })
  .refine(({ host, service }) => (host === undefined) !== (service === undefined), {
    message: "exactly one of `host` and `service` is required",
  });

interface Pick {
  readonly processing: Processing;
  /** Undefined until the picker has selected endpoints. */
  selection: Selection | undefined;
  /** True if the address could not be reached, and the request tries another one. */
  isUnreachable: boolean;
}

interface Selection {
  readonly endpoints: readonly string[];
  readonly changes: Changes;
  readonly body: Buffer | undefined;
}

export const endpointPicker = definePolicy({
  kind: "endpointPicker",
  doc: "An endpoint picker (Gateway API Inference Extension) selects the server of a `service` backend for each request.",
  scopes: ["backend"],
  role: "security",
  protection: () => "paths",
  schema,

  compile(config, env): Hooks {
    const { host, service, tls, timeout, failureMode, maxBodyBytes } = config;
    const name = host ?? service ?? "";
    // The endpoints of a Service come from the API server, which accepts no local addresses.
    const egress = host === undefined ? env.egress.to("services") : env.egress;
    const clients = env.acquire<PickerClients>(
      `endpoint picker ${name} ${maxBodyBytes}`,
      { tls, egress },
      () => openPickerClients(env.clock, { maxBodyBytes, egress, tls: readServiceTls(tls, env) }),
      (closing) => closing.close(),
    );
    const count = env.metrics.counter("gateway_endpoint_picks_total", "Requests to endpoint pickers.", [
      "owner",
      "result",
    ]);
    const logger = env.logger.for("policies");
    const latestPick = new StateKey<Pick>();
    let loggedAtMs = Number.NEGATIVE_INFINITY;

    const addresses = (): readonly string[] => (host === undefined ? (env.endpoints?.addresses(name) ?? []) : [host]);

    /** Returns only if the request continues without a selection. */
    function failed(exchange: Exchange, error: Error): void {
      count.labels(env.scopeName, "failed").add();
      const nowMs = env.clock.monotonicMs();
      if (nowMs - loggedAtMs >= LOG_INTERVAL_MS) {
        loggedAtMs = nowMs;
        logger.warn("the endpoint picker failed", { picker: name, failureMode, reason: error.message });
      }
      if (exchange.state(latestPick)?.selection !== undefined) return;
      exchange.skip(`the endpoint picker failed: ${error.message}`);
      if (failureMode === "closed")
        throw new GatewayError("not_ready", {
          message: "the endpoint picker is not available",
          detail: `${name}: ${error.message}`,
          headers: { "retry-after": "1" },
          cause: error,
        });
    }

    function start(exchange: Exchange, tried: Set<string>): Pick | undefined {
      const known = addresses();
      const stream = clients.open(known, tried);
      if (stream === undefined) {
        failed(exchange, new Error("it has no ready endpoints"));
        return undefined;
      }
      const hasOther = tried.size < Math.min(known.length, PICKER_TRIES);
      const processing = new Processing(stream, MODES, {
        clock: env.clock,
        timeoutMs: timeout,
        allowModeOverride: false,
        maxBodyBytes,
        memory: new MemoryAccount(env.memory.streams, exchange.client),
        events: {
          failed: (error) => {
            const isUnavailable = (error as { code?: unknown }).code === UNAVAILABLE;
            if (hasOther && isUnavailable && pick.selection === undefined) pick.isUnreachable = true;
            else failed(exchange, error);
          },
          processed: (step, details) =>
            exchange.trace?.point({ type: "policyEvent", kind: "endpointPicker", details: { step, ...details } }),
        },
      });
      const pick: Pick = { processing, selection: undefined, isUnreachable: false };
      exchange.setState(latestPick, pick);
      exchange.onEnd ??= [];
      exchange.onEnd.push(() => processing.close());
      return pick;
    }

    async function pickEndpoint(exchange: Exchange): Promise<Reply | undefined> {
      const { request } = exchange;
      const before = exchange.state(latestPick);
      // Servers must not take the client's header for a selection.
      request.headers.delete(PICKED);
      const rest = before && remaining(before, exchange.upstream.endpoint);
      if (rest !== undefined) {
        // An earlier attempt used the same backend, so the next endpoint of the picker's list follows.
        apply(exchange, rest);
        return undefined;
      }
      before?.processing.close();
      const { body } = request;
      const bytes = body.kind === "bytes" ? body.bytes : EMPTY;
      if (bytes.length > maxBodyBytes) throw new GatewayError("body_too_large");
      const tried = new Set<string>();
      const fields = requestFields(exchange, exchange.request.headers);
      const ask = async ({ processing }: Pick) =>
        bytes.length === 0
          ? { headers: await processing.headers("requestHeaders", fields, true), body: undefined }
          : processing.whole(fields, bytes);
      let pick = start(exchange, tried);
      let answer = pick && (await ask(pick));
      while (pick?.isUnreachable === true && !exchange.isOver) {
        pick = start(exchange, tried);
        answer = pick && (await ask(pick));
      }
      if (pick === undefined) return undefined;
      const picked = answer?.headers;
      if (picked?.immediate) {
        count.labels(env.scopeName, "rejected").add();
        return immediateReply(exchange, picked.immediate, "the endpoint picker rejected the request");
      }
      // The client disconnected in the meantime.
      if (exchange.isOver) return undefined;
      if (picked === undefined) {
        // Without a failure, the picker ended the stream.
        if (!pick.processing.hasFailed) failed(exchange, new Error("it ended the stream without a selection"));
        return undefined;
      }
      const endpoints = readEndpoints(picked);
      if (endpoints.length === 0) {
        pick.processing.close();
        failed(exchange, new Error(`its response has no ${PICKED}`));
        return undefined;
      }
      const { changes } = picked;
      const selection = { endpoints, changes, body: answer?.body ?? changes.body };
      pick.selection = selection;
      count.labels(env.scopeName, "picked").add();
      exchange.trace?.point({ type: "policyEvent", kind: "endpointPicker", details: { endpoints } });
      apply(exchange, selection);
      return undefined;
    }

    async function reportResponse(exchange: Exchange, processing: Processing): Promise<void> {
      const { response, request, upstream } = exchange;
      if (response === undefined) return;
      const isEmpty = hasNoBody(request.method, response.status);
      const served: WireStruct = { fields: { [SERVED]: { stringValue: upstream.endpoint ?? "" } } };
      const answer = await processing.headers("responseHeaders", responseFields(response), isEmpty, {
        metadata: { [NAMESPACE]: served },
      });
      // The picker selects endpoints. It cannot replace a response that exists.
      if (answer?.immediate || answer === undefined) return;
      applyChanges(response.headers, answer.changes);
      if (isEmpty || processing.isOver) return;
      response.filters ??= [];
      response.filters.push(reportedBody(processing, response));
    }

    return {
      shape: sending(env, "endpointPicker", { bodyBytes: () => maxBodyBytes, head: pickEndpoint }),
      response: {
        head(exchange) {
          const pick = exchange.state(latestPick);
          // Only the attempt that produced the response is reported, and responses of the gateway itself are not.
          if (pick?.selection === undefined || exchange.upstream.picked === undefined || pick.processing.isOver) return;
          if (exchange.response?.source !== "upstream") return;
          return reportResponse(exchange, pick.processing);
        },
      },
    };
  },
});

const EMPTY = Buffer.alloc(0);

function reportedBody(processing: Processing, response: GatewayResponse): BodyFilter {
  let duplex: ReturnType<Processing["duplex"]> | undefined;
  const passed = async (result: Promise<Buffer | object> | undefined): Promise<Buffer> => {
    const bytes = await result;
    if (Buffer.isBuffer(bytes)) return bytes;
    throw new GatewayError("backend_response_invalid", {
      detail: `the endpoint picker ended the response with status ${response.status}`,
    });
  };
  return {
    start(emit) {
      duplex = processing.duplex("responseBody", emit, true);
    },
    data: (chunk) => passed(duplex?.send(chunk)),
    end: () => passed(duplex?.end()),
  };
}

function apply(exchange: Exchange, { endpoints, changes, body }: Selection): void {
  applyChanges(exchange.request.headers, changes);
  if (body !== undefined) replaceBody(exchange, body);
  exchange.upstream.picked = endpoints;
}

/** Returns the selection without the endpoints up to the one that was used, or undefined if none is left. */
function remaining({ processing, selection }: Pick, used: string | undefined): Selection | undefined {
  if (selection === undefined || processing.isOver || used === undefined) return undefined;
  const endpoints = selection.endpoints.slice(selection.endpoints.indexOf(used) + 1);
  return endpoints.length === 0 ? undefined : { ...selection, endpoints };
}

/** The picker sends a list in the metadata or the header, or the same in both. */
function readEndpoints({ sentHeaders = [], metadata }: Exclude<Answer, { readonly immediate: object }>): string[] {
  const header = sentHeaders.find((option) => option.header?.key.toLowerCase() === PICKED)?.header;
  const text =
    metadata?.fields[NAMESPACE]?.structValue?.fields[PICKED]?.stringValue ??
    (header?.value || Buffer.from(header?.rawValue ?? EMPTY).toString("latin1"));
  return text
    .split(",", MAX_PICKED)
    .map((endpoint) => endpoint.trim())
    .filter((endpoint) => endpoint !== "");
}
