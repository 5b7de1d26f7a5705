/**
 * Creates credentials for a gRPC connection without TLS. A confined connection fails before its first byte if it leads
 * to a refused address.
 */
import type { ChannelCredentials, ChannelOptions } from "@grpc/grpc-js";
import { isRefusedAddress, refusedAddressError } from "../local-address.ts";

type Grpc = Pick<typeof import("@grpc/grpc-js"), "credentials">;

export interface PlainChannel {
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
}

export function plainChannel(grpc: Grpc, address: string, isConfined: boolean): PlainChannel {
  const credentials = grpc.credentials.createInsecure();
  if (!isConfined) return { credentials, options: {} };
  const host = address.replace(/:\d+$/, "");
  const create = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...parts) => {
    const connector = create(...parts);
    return {
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => connector.destroy(),
      async connect(socket) {
        const { remoteAddress } = socket;
        if (remoteAddress === undefined || isRefusedAddress(remoteAddress, host))
          throw refusedAddressError(remoteAddress ?? "the socket");
        return connector.connect(socket);
      },
    };
  };
  // Prevents sharing a connection that another configuration opened without this check.
  return { credentials, options: { "grpc.use_local_subchannel_pool": 1 } };
}
