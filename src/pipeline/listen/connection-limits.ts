/**
 * Limits the open connections of a listener per client address, and logs rejected ones.
 */
import type { Socket } from "node:net";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { addressKey } from "./backlog.ts";
import type { ListenerEnv } from "./listener-env.ts";

const LOG_REJECTED_EVERY_MS = 10_000;

export interface ConnectionLimits {
  /**
   * Counts the connection for its address. Destroys it and returns false if the address has too many, or if too few
   * file descriptors are left.
   */
  admit(socket: Socket): boolean;
  logRejected(message: string, limit: number): void;
}

export interface ConnectionLimitsEnv extends Pick<ListenerEnv, "clock" | "logger" | "isTrustedPeer"> {
  readonly limits: Pick<ListenerEnv["limits"], "maxConnectionsPerAddress">;
}

export function createConnectionLimits(env: ConnectionLimitsEnv): ConnectionLimits {
  let rejected = 0;
  let nextLogMs = 0;
  const perAddress = new Map<string, number>();

  function logRejected(message: string, limit: number): void {
    rejected += 1;
    const nowMs = env.clock.monotonicMs();
    if (nowMs < nextLogMs) return;
    nextLogMs = nowMs + LOG_REJECTED_EVERY_MS;
    env.logger.warn(message, { limit, refused: rejected });
    rejected = 0;
  }

  return {
    admit(socket) {
      const descriptor = descriptorOf(socket);
      if (descriptor !== undefined && !fileDescriptors.mayAccept(descriptor)) {
        socket.destroy();
        logRejected("connections rejected: too many files are open (ulimit -n)", descriptor);
        return false;
      }
      const { remoteAddress } = socket;
      // Connections of trusted proxies and of Unix sockets are not limited.
      if (remoteAddress === undefined || env.isTrustedPeer(remoteAddress)) return true;
      const address = addressKey(remoteAddress);
      const open = perAddress.get(address) ?? 0;
      const limit = env.limits.maxConnectionsPerAddress;
      if (open >= limit) {
        socket.destroy();
        logRejected("connections rejected: one address has too many open", limit);
        return false;
      }
      perAddress.set(address, open + 1);
      socket.once("close", () => {
        const left = (perAddress.get(address) ?? 0) - 1;
        if (left > 0) perAddress.set(address, left);
        else perAddress.delete(address);
      });
      return true;
    },
    logRejected,
  };
}

/** Returns undefined on systems without numbered sockets. */
function descriptorOf(socket: Socket): number | undefined {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd?: number } | null };
  return handle?.fd;
}
