/**
 * Implements the gRPC client of a rate limit service. The gRPC library is loaded when a client is opened.
 */

import type { Client, ServiceError } from "@grpc/grpc-js";
import type { fromJSON } from "@grpc/proto-loader";
import type { Clock } from "../../base/clock.ts";
import { exportsOf } from "../../base/exports-of.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Task, Tasks } from "../../base/tasks.ts";
import { grpcChannel, requireGrpcAddress } from "../../http/client/grpc-credentials.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";

export const SERVICE_NAME = "envoy.service.ratelimit.v3.RateLimitService";

export interface RlsDescriptor {
  readonly entries: readonly { readonly key: string; readonly value: string }[];
}

export interface RlsRequest {
  readonly domain: string;
  readonly descriptors: readonly RlsDescriptor[];
  /** The service counts 0 as 1. */
  readonly hitsAddend: number;
}

export interface RlsHeader {
  readonly key: string;
  readonly value: string;
  readonly rawValue: Uint8Array;
}

export interface RlsStatus {
  readonly code: number;
  readonly currentLimit: { readonly requestsPerUnit: number; readonly unit: number } | null;
  readonly limitRemaining: number;
  readonly durationUntilReset: { readonly seconds: number; readonly nanos: number } | null;
}

export interface RlsResponse {
  readonly overallCode: number;
  readonly statuses: readonly RlsStatus[];
  readonly responseHeadersToAdd: readonly RlsHeader[];
  readonly requestHeadersToAdd: readonly RlsHeader[];
  readonly rawBody: Uint8Array;
}

/** Envoy counts this code as OK. */
export const CODE_UNKNOWN = 0;
export const CODE_OK = 1;
export const CODE_OVER_LIMIT = 2;

/** A month counts as 30 days and a year as 365. */
export const UNIT_SECONDS: Readonly<Record<number, number>> = {
  1: 1,
  2: 60,
  3: 3_600,
  4: 86_400,
  5: 2_592_000,
  6: 31_536_000,
  7: 604_800,
};

const field = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });

export const PROTOCOL: Parameters<typeof fromJSON>[0] = {
  nested: {
    envoy: {
      nested: {
        service: {
          nested: {
            ratelimit: {
              nested: {
                v3: {
                  nested: {
                    RateLimitService: {
                      methods: {
                        ShouldRateLimit: {
                          requestType: "RateLimitRequest",
                          responseType: "RateLimitResponse",
                          comment: "",
                        },
                      },
                    },
                    RateLimitRequest: {
                      fields: {
                        domain: field("string", 1),
                        descriptors: list("Descriptor", 2),
                        hitsAddend: field("uint32", 3),
                      },
                    },
                    Descriptor: { fields: { entries: list("Entry", 1) } },
                    Entry: { fields: { key: field("string", 1), value: field("string", 2) } },
                    RateLimitResponse: {
                      fields: {
                        overallCode: field("int32", 1),
                        statuses: list("Status", 2),
                        responseHeadersToAdd: list("HeaderValue", 3),
                        requestHeadersToAdd: list("HeaderValue", 4),
                        rawBody: field("bytes", 5),
                      },
                    },
                    Status: {
                      fields: {
                        code: field("int32", 1),
                        currentLimit: field("RateLimit", 2),
                        limitRemaining: field("uint32", 3),
                        durationUntilReset: field("Duration", 4),
                      },
                    },
                    RateLimit: { fields: { requestsPerUnit: field("uint32", 1), unit: field("int32", 2) } },
                    HeaderValue: {
                      fields: { key: field("string", 1), value: field("string", 2), rawValue: field("bytes", 3) },
                    },
                    Duration: { fields: { seconds: field("int64", 1), nanos: field("int32", 2) } },
                  },
                },
              },
            },
          },
        },
      },
    },
  },
};

export interface RlsClient {
  /** Rejects if no valid response arrives within the timeout. */
  call(request: RlsRequest, timeoutMs: number): Promise<RlsResponse>;
  close(): void;
}

const FIRST_RECONNECT_MS = 100;
const MAX_RECONNECT_MS = 5_000;
/** The limit leaves room for the headers and body of a 429 response. */
const MAX_RESPONSE_BYTES = peerInput("rate-limit-service/response").maxBytes;
/** Calls in this time after the start wait for the first connection and response, even if their timeout is shorter. */
const FIRST_CONNECTION_MS = 2_000;
/** A half-open connection may report no error, so the connection is replaced after this many consecutive timeouts. */
const MAX_CONSECUTIVE_TIMEOUTS = 20;

interface Channel {
  /** Resolves when the first connection attempt has succeeded or failed. */
  readonly connected: Promise<void>;
  send(request: RlsRequest, done: (error: Error | null, response: RlsResponse | undefined) => void): { cancel(): void };
  close(): void;
}

export function openRlsClient(host: string, clock: Clock, tasks: Tasks, egress: EgressGuard): RlsClient {
  let isClosed = false;
  let hasResponded = false;
  let consecutiveTimeouts = 0;
  const openedMs = clock.monotonicMs();
  let channel: Promise<Channel> = openChannel(host, egress);
  const task: Task = tasks.start("rate-limit-service", host, () => ({ consecutiveTimeouts }));
  // `call` reports the failure. Without a call, the unhandled rejection would be logged as a defect.
  channel.catch(() => undefined);
  // The value becomes undefined, so that later calls do not wait.
  let starting: Promise<void> | undefined = firstConnection(channel, clock).then(() => {
    starting = undefined;
  });

  function replaceChannel(): void {
    consecutiveTimeouts = 0;
    channel.then((old) => old.close()).catch(() => undefined);
    channel = openChannel(host, egress);
    channel.catch(() => undefined);
  }

  return {
    async call(request, timeoutMs) {
      if (starting !== undefined) await starting;
      const open = await channel;
      if (isClosed) throw new Error("the connection is closed");
      return new Promise<RlsResponse>((resolve, reject) => {
        // The first response takes longer, because code is loaded and compiled on both sides.
        const untilReadyMs = hasResponded ? 0 : openedMs + FIRST_CONNECTION_MS - clock.monotonicMs();
        const waitMs = Math.max(timeoutMs, untilReadyMs);
        const timer = clock.after(waitMs, () => {
          consecutiveTimeouts += 1;
          reject(new Error(`no response within ${Math.round(waitMs)} ms`));
          sent.cancel();
          if (consecutiveTimeouts >= MAX_CONSECUTIVE_TIMEOUTS && !isClosed) replaceChannel();
        });
        const sent = open.send(request, (error, response) => {
          timer.cancel();
          if (error || !response) {
            reject(error ?? new Error("an empty response"));
            return;
          }
          hasResponded = true;
          consecutiveTimeouts = 0;
          resolve(response);
        });
      });
    },
    close() {
      isClosed = true;
      task.end();
      channel.then((open) => open.close()).catch(() => undefined);
    },
  };
}

/** The promise never rejects, because `call` reports a failed connection. */
function firstConnection(channel: Promise<Channel>, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(FIRST_CONNECTION_MS, resolve);
    void channel
      .then((open) => open.connected)
      .catch(() => undefined)
      .then(() => {
        timer.cancel();
        resolve();
      });
  });
}

async function openChannel(host: string, egress: EgressGuard): Promise<Channel> {
  requireGrpcAddress(host, egress);
  const [grpc, loader] = await Promise.all([
    import("@grpc/grpc-js").then(exportsOf),
    import("@grpc/proto-loader").then(exportsOf),
  ]);
  const definition = loader.fromJSON(PROTOCOL, { keepCase: true, longs: Number, defaults: true, arrays: true });
  const service = definition[SERVICE_NAME] as import("@grpc/grpc-js").ServiceDefinition;
  const method = service.ShouldRateLimit as import("@grpc/grpc-js").MethodDefinition<RlsRequest, RlsResponse>;
  const { credentials, options } = grpcChannel(grpc, host, egress);
  const client: Client = new grpc.Client(host, credentials, {
    ...options,
    "grpc.initial_reconnect_backoff_ms": FIRST_RECONNECT_MS,
    "grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS,
    "grpc.max_receive_message_length": MAX_RESPONSE_BYTES,
    "grpc.enable_retries": 0,
    // `http_proxy` in the environment does not apply to the gateway's own services.
    "grpc.enable_http_proxy": 0,
  });
  // Starts connecting before the first request.
  const connection = client.getChannel();
  const { IDLE, CONNECTING } = grpc.connectivityState;
  const connected = new Promise<void>((resolve) => {
    const check = (): void => {
      const state = connection.getConnectivityState(true);
      if (state !== IDLE && state !== CONNECTING) resolve();
      else connection.watchConnectivityState(state, Number.POSITIVE_INFINITY, (error) => (error ? resolve() : check()));
    };
    check();
  });
  return {
    connected,
    send: (request, done) =>
      client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        (error: ServiceError | null, response?: RlsResponse) => done(error, response),
      ),
    close: () => client.close(),
  };
}
