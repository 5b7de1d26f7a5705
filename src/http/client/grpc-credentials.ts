/**
 * Creates credentials for a gRPC connection. A connection to an address that the guard does not permit fails before its first
 * byte.
 */
import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";
import { namesChecked } from "../certificates.ts";
import type { EgressGuard } from "../egress-guard.ts";
import { hostOf } from "../host.ts";
import type { TlsOptions } from "../http-client.ts";

type Grpc = Pick<typeof import("@grpc/grpc-js"), "credentials">;

interface GrpcChannel {
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
}

export function grpcChannel(grpc: Grpc, address: string, egress: EgressGuard, tls?: TlsOptions): GrpcChannel {
  const credentials = tls === undefined ? grpc.credentials.createInsecure() : tlsCredentials(grpc, tls);
  const named = tls?.servername === undefined ? {} : { "grpc.ssl_target_name_override": tls.servername };
  // Connections of another owner, or of a configuration that opened them without this check, are not shared.
  const options = { ...named, "grpc.use_local_subchannel_pool": 1 };
  if (egress.isOpen) return { credentials, options };
  const host = grpcHost(address);
  const create = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...parts) => {
    const connector = create(...parts);
    return {
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => connector.destroy(),
      async connect(socket) {
        const { remoteAddress } = socket;
        if (remoteAddress === undefined || !egress.permits(remoteAddress, host))
          throw egress.refusal(remoteAddress ?? "the socket");
        return connector.connect(socket);
      },
    };
  };
  return { credentials, options };
}

/** Throws if nothing may connect to the address, before the libraries are loaded. */
export function requireGrpcAddress(address: string, egress: EgressGuard): void {
  const fault = egress.fault({ host: grpcHost(address) });
  if (fault) throw fault;
}

function grpcHost(address: string): string {
  return hostOf(address) || address;
}

function tlsCredentials({ credentials }: Grpc, { ca, names, insecure }: TlsOptions): ChannelCredentials {
  return credentials.createSsl(ca === undefined ? null : Buffer.from(ca), null, null, {
    rejectUnauthorized: insecure !== true,
    ...(names === undefined ? {} : { checkServerIdentity: namesChecked(names) }),
  });
}
