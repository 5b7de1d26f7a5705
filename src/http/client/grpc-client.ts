/**
 * Opens the client of a gRPC service. The gRPC library is loaded when a client is opened.
 */
import type { Client, ServiceDefinition } from "@grpc/grpc-js";
import type { fromJSON } from "@grpc/proto-loader";
import { exportsOf } from "../../base/exports-of.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import type { EgressGuard } from "../egress-guard.ts";
import type { TlsOptions } from "../http-client.ts";
import { grpcChannel, requireGrpcAddress } from "./grpc-credentials.ts";

const FIRST_RECONNECT_MS = 100;
const MAX_RECONNECT_MS = 5_000;

export type GrpcProtocol = Parameters<typeof fromJSON>[0];

export interface GrpcClientOptions {
  readonly egress: EgressGuard;
  readonly tls?: TlsOptions | undefined;
}

/** The limit of `input` applies to each message of the service. */
export async function openGrpcClient(
  input: PeerInput<"protobuf">,
  host: string,
  protocol: GrpcProtocol,
  serviceName: string,
  { egress, tls }: GrpcClientOptions,
): Promise<{ client: Client; service: ServiceDefinition }> {
  requireGrpcAddress(host, egress);
  const [grpc, loader] = await Promise.all([
    import("@grpc/grpc-js").then(exportsOf),
    import("@grpc/proto-loader").then(exportsOf),
  ]);
  const definition = loader.fromJSON(protocol, { keepCase: true, longs: Number, defaults: true, arrays: true });
  const { credentials, options } = grpcChannel(grpc, host, egress, tls);
  const client = new grpc.Client(host, credentials, {
    ...options,
    "grpc.initial_reconnect_backoff_ms": FIRST_RECONNECT_MS,
    "grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS,
    "grpc.max_receive_message_length": input.maxBytes,
    "grpc.enable_retries": 0,
    // The proxy environment variables do not apply to the operator's services.
    "grpc.enable_http_proxy": 0,
  });
  // Starts connecting before the first request.
  client.getChannel().getConnectivityState(true);
  return { client, service: definition[serviceName] as ServiceDefinition };
}
