/**
 * Implements a client for authorization services that provide Envoy's check API over gRPC. The gRPC library is loaded
 * when a client is opened.
 */

import type { Client, MethodDefinition, ServiceDefinition, ServiceError } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { exportsOf } from "../../base/exports-of.ts";
import type { Exchange } from "../../core/exchange.ts";
import { plainChannel } from "../../http/client/grpc-credentials.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import {
  type CheckRequest,
  type CheckResponse,
  type HeaderOption,
  type MapEntry,
  PROTOCOL,
  SERVICE_NAME,
} from "./check-protocol.ts";
import {
  checkHeaderCount,
  denialStatus,
  type HeaderAction,
  type HeaderChange,
  headerChange,
  mayChange,
  type Verdict,
} from "./verdict.ts";

const FIRST_RECONNECT_MS = 100;
const MAX_RECONNECT_MS = 5_000;
/** The limit leaves room for headers and a denial page. A larger response is treated as a failure. */
const MAX_RESPONSE_BYTES = 256 * 1024;

export interface CheckClient {
  /** Rejects if the service does not send a valid response within the timeout. */
  check(request: CheckRequest, timeoutMs: number): Promise<CheckResponse>;
  close(): void;
}

/** With `isConfined`, the address comes from a cluster resource and must not be a local address. */
export function openCheckClient(host: string, clock: Clock, isConfined = false): CheckClient {
  const opening = openClient(host, isConfined);
  // Each call reports the failure. Without a call, the unhandled rejection would be logged as a defect.
  opening.catch(() => undefined);
  return {
    async check(request, timeoutMs) {
      const { client, method } = await opening;
      return new Promise((resolve, reject) => {
        const timer = clock.after(timeoutMs, () => {
          reject(new Error(`no response within ${timeoutMs} ms`));
          call.cancel();
        });
        const call = client.makeUnaryRequest(
          method.path,
          method.requestSerialize,
          method.responseDeserialize,
          request,
          (error: ServiceError | null, response?: CheckResponse) => {
            timer.cancel();
            if (error || !response) reject(error ?? new Error("an empty response"));
            else resolve(response);
          },
        );
      });
    },
    close: () => void opening.then(({ client }) => client.close()).catch(() => undefined),
  };
}

async function openClient(
  host: string,
  isConfined: boolean,
): Promise<{ client: Client; method: MethodDefinition<CheckRequest, CheckResponse> }> {
  const [grpc, loader] = await Promise.all([
    import("@grpc/grpc-js").then(exportsOf),
    import("@grpc/proto-loader").then(exportsOf),
  ]);
  const definition = loader.fromJSON(PROTOCOL, { keepCase: true, longs: Number, defaults: true, arrays: true });
  const service = definition[SERVICE_NAME] as ServiceDefinition;
  const { credentials, options } = plainChannel(grpc, host, isConfined);
  const client = new grpc.Client(host, credentials, {
    ...options,
    "grpc.initial_reconnect_backoff_ms": FIRST_RECONNECT_MS,
    "grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS,
    "grpc.max_receive_message_length": MAX_RESPONSE_BYTES,
    "grpc.enable_retries": 0,
    // The proxy environment variables do not apply to the operator's authorization service.
    "grpc.enable_http_proxy": 0,
  });
  // Starts connecting before the first request.
  client.getChannel().getConnectivityState(true);
  return { client, method: service.Check as MethodDefinition<CheckRequest, CheckResponse> };
}

export function checkRequest(
  { id, request, source, clientAddress, startedAt }: Exchange,
  headers: HeaderList,
  context: readonly (readonly [name: string, value: string | undefined])[],
): CheckRequest {
  const seconds = Math.floor(startedAt / 1000);
  const { client, identity = "" } = source;
  // If a proxy reported the client's address, the client's port is unknown.
  const port = client === undefined ? source.port : 0;
  return {
    attributes: {
      source: { address: { socketAddress: { address: clientAddress, portValue: port } }, principal: identity },
      request: {
        time: { seconds, nanos: Math.round(startedAt - seconds * 1000) * 1_000_000 },
        http: {
          id,
          method: request.method,
          headers: Array.from(headers.entries(), ([key, value]): MapEntry => ({ key, value: utf8Text(value) })),
          path: utf8Text(pathAndQuery(request)),
          host: request.host,
          scheme: request.scheme,
          protocol: request.version === "2" ? "HTTP/2" : `HTTP/${request.version}`,
        },
      },
      contextExtensions: context.flatMap(([key, value]) => (value === undefined ? [] : [{ key, value }])),
    },
  };
}

/** Decodes a latin1 string, which has one character per byte, as UTF-8. */
function utf8Text(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf8");
}

/** Throws if the response has no valid decision or an unsupported change. */
export function parseVerdict({ status, deniedResponse, okResponse, errorResponse }: CheckResponse): Verdict {
  if (status === null) throw new Error("a response without a status");
  if (status.code === 0 && deniedResponse === null) {
    if (errorResponse !== null) throw new Error("an error response");
    const { headers = [], headersToRemove = [], responseHeadersToAdd = [] } = okResponse ?? {};
    const { queryParametersToSet = [], queryParametersToRemove = [] } = okResponse ?? {};
    if (queryParametersToSet.length > 0 || queryParametersToRemove.length > 0)
      throw new Error("a change of query parameters, which is not supported");
    checkHeaderCount(headersToRemove);
    return {
      allowed: true,
      set: toHeaderChanges(headers, "replace"),
      remove: headersToRemove.map((name) => name.toLowerCase()).filter(mayChange),
      respond: toHeaderChanges(responseHeadersToAdd, "append"),
    };
  }
  return {
    allowed: false,
    status: denialStatus(deniedResponse?.status?.code),
    headers: toHeaderChanges(deniedResponse?.headers ?? [], "replace"),
    body: deniedResponse?.body ?? "",
    reason: status.message === "" ? `code ${status.code}` : status.message.slice(0, 500),
  };
}

function toHeaderChanges(options: readonly HeaderOption[], unset: HeaderAction): HeaderChange[] {
  checkHeaderCount(options);
  return options.flatMap(({ header, append, appendAction }) => {
    if (header === null) return [];
    const { key, value, rawValue } = header;
    const bytes = value === "" && rawValue.length > 0 ? Buffer.from(rawValue) : Buffer.from(value);
    return headerChange(key, bytes.toString("latin1"), headerAction(append, appendAction, unset)) ?? [];
  });
}

/**
 * Maps Envoy's `append_action` values. On the wire, 0 (append) equals an unset field, so it selects the default of the
 * list. Request headers are not appended by default, and response headers are.
 */
const ACTIONS: readonly (HeaderAction | undefined)[] = [undefined, "addIfAbsent", "overwrite", "overwriteIfExists"];

function headerAction(append: HeaderOption["append"], appendAction: number, unset: HeaderAction): HeaderAction {
  if (append !== null) return append.value ? "append" : "overwrite";
  if (!(appendAction in ACTIONS)) throw new Error(`the unknown append_action ${appendAction}`);
  return ACTIONS[appendAction] ?? unset;
}
