/**
 * Implements a client for authorization services that provide Envoy's check API over gRPC. The gRPC library is loaded
 * when a client is opened.
 */

import type { Client, MethodDefinition } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange } from "../../core/exchange.ts";
import { openGrpcClient } from "../../http/client/grpc-client.ts";
import { callUnary } from "../../http/client/grpc-unary.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { checkHeaderCount, mayChange, toHeaderChanges, utf8Text } from "../../policy-parts/service-headers.ts";
import { type CheckRequest, type CheckResponse, type MapEntry, PROTOCOL, SERVICE_NAME } from "./check-protocol.ts";
import { denialStatus, type Verdict } from "./verdict.ts";

/** The limit leaves room for headers and a denial page. A larger response is treated as a failure. */
const RESPONSE = peerInput("ext-authz/grpc-response");

export interface CheckClient {
  /** Rejects if the service does not send a valid response within the timeout. */
  check(request: CheckRequest, timeoutMs: number): Promise<CheckResponse>;
  close(): void;
}

export function openCheckClient(host: string, clock: Clock, egress: EgressGuard): CheckClient {
  const opening = openClient(host, egress);
  // Each call reports the failure. Without a call, the unhandled rejection would be logged as a defect.
  opening.catch(() => undefined);
  return {
    async check(request, timeoutMs) {
      const { client, method } = await opening;
      return callUnary(client, method, request, { clock, timeoutMs });
    },
    close: () => void opening.then(({ client }) => client.close()).catch(() => undefined),
  };
}

async function openClient(
  host: string,
  egress: EgressGuard,
): Promise<{ client: Client; method: MethodDefinition<CheckRequest, CheckResponse> }> {
  const { client, service } = await openGrpcClient(RESPONSE, host, PROTOCOL, SERVICE_NAME, { egress });
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
