/**
 * Manages the gRPC clients of an endpoint picker whose addresses can change. The addresses are used in round-robin order.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import {
  openProcessorClient,
  type ProcessorClient,
  type ProcessorClientOptions,
  type ProcessorStream,
} from "../../policy-parts/ext-proc/client.ts";

const MESSAGE = peerInput("endpoint-picker/message");

export interface PickerClients {
  /** Opens a stream to an address that is not in `tried`, and adds it. Returns undefined if there is none. */
  open(addresses: readonly string[], tried: Set<string>): ProcessorStream | undefined;
  close(): void;
}

export function openPickerClients(clock: Clock, options: ProcessorClientOptions): PickerClients {
  const clients = new Map<string, ProcessorClient>();
  let nextIndex = 0;
  return {
    open(addresses, tried) {
      for (const [address, client] of clients)
        if (!addresses.includes(address)) {
          clients.delete(address);
          client.close();
        }
      const untried = tried.size === 0 ? addresses : addresses.filter((one) => !tried.has(one));
      nextIndex = nextIndex + 1 >= untried.length ? 0 : nextIndex + 1;
      const address = untried[nextIndex];
      if (address === undefined) return undefined;
      tried.add(address);
      const client = clients.get(address) ?? openProcessorClient(MESSAGE, address, clock, options);
      clients.set(address, client);
      return client.open();
    },
    close() {
      for (const client of clients.values()) client.close();
      clients.clear();
    },
  };
}
