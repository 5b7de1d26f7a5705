/**
 * The connection to one rate limit service: kept open, re-established by itself with a growing pause, shared by all
 * policies that name the same address. A call ends within its timeout, whatever the service does. The gRPC library
 * is loaded only when a global limit is configured: it costs more start time than the rest of the gateway.
 */
import type { Client, ServiceError } from "@grpc/grpc-js";
import type { Clock } from "../../lib/clock.ts";
import { exportsOf } from "../../lib/exports-of.ts";
import type { Task, Tasks } from "../../lib/tasks.ts";
import { PROTOCOL, type RlsRequest, type RlsResponse, SERVICE_NAME } from "./rls-protocol.ts";

export interface RlsClient {
  /** Rejects when the service does not answer properly within the timeout. */
  call(request: RlsRequest, timeoutMs: number): Promise<RlsResponse>;
  close(): void;
}

/** A service that came back is noticed within seconds; one that stays away is not pestered. */
const FIRST_RECONNECT_MS = 100;
const MAX_RECONNECT_MS = 5_000;
/** Headers and a body for a refusal; anything larger is no answer of a rate limit service. */
const MAX_ANSWER_BYTES = 64 * 1024;
/** A connection whose other end vanished never fails by itself: after so many timeouts in a row it is replaced. */
const MAX_TIMEOUTS_IN_A_ROW = 20;

interface Channel {
  send(request: RlsRequest, done: (error: Error | null, response: RlsResponse | undefined) => void): { cancel(): void };
  close(): void;
}

export function openRlsClient(host: string, clock: Clock, tasks: Tasks): RlsClient {
  let isClosed = false;
  let timeoutsInARow = 0;
  let channel: Promise<Channel> = openChannel(host);
  const task: Task = tasks.start("rate-limit-service", host, () => ({ timeoutsInARow }));
  // Whoever calls sees the failure; without a call nobody does, and it must not end the process.
  channel.catch(() => undefined);

  function replaceChannel(): void {
    timeoutsInARow = 0;
    channel.then((old) => old.close()).catch(() => undefined);
    channel = openChannel(host);
    channel.catch(() => undefined);
  }

  return {
    async call(request, timeoutMs) {
      const open = await channel;
      if (isClosed) throw new Error("the connection is closed");
      return new Promise<RlsResponse>((resolve, reject) => {
        const timer = clock.after(timeoutMs, () => {
          timeoutsInARow += 1;
          reject(new Error(`no answer within ${timeoutMs} ms`));
          sent.cancel();
          if (timeoutsInARow >= MAX_TIMEOUTS_IN_A_ROW && !isClosed) replaceChannel();
        });
        const sent = open.send(request, (error, response) => {
          timer.cancel();
          if (error || !response) {
            reject(error ?? new Error("an empty answer"));
            return;
          }
          timeoutsInARow = 0;
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

async function openChannel(host: string): Promise<Channel> {
  const [grpc, loader] = await Promise.all([
    import("@grpc/grpc-js").then(exportsOf),
    import("@grpc/proto-loader").then(exportsOf),
  ]);
  const definition = loader.fromJSON(PROTOCOL, { keepCase: true, longs: Number, defaults: true, arrays: true });
  const service = definition[SERVICE_NAME] as import("@grpc/grpc-js").ServiceDefinition;
  const method = service.ShouldRateLimit as import("@grpc/grpc-js").MethodDefinition<RlsRequest, RlsResponse>;
  const client: Client = new grpc.Client(host, grpc.credentials.createInsecure(), {
    "grpc.initial_reconnect_backoff_ms": FIRST_RECONNECT_MS,
    "grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS,
    "grpc.max_receive_message_length": MAX_ANSWER_BYTES,
    "grpc.enable_retries": 0,
    // A proxy of the environment is for requests of users, not for the gateway's own service.
    "grpc.enable_http_proxy": 0,
  });
  // Connect now: the first request should not pay for it.
  client.getChannel().getConnectivityState(true);
  return {
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
