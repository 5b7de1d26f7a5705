/**
 * Derives connection limits from the open file limit and the memory of the process, and watches the heap.
 */

import { connectionsThatFit, openFilesLimit } from "../base/file-descriptors.ts";
import {
  collectGarbage,
  type HeapPressure,
  type HeapSize,
  nodeFlags,
  oldGeneration,
  processMemory,
  tightest,
  watchHeap,
} from "../base/heap-pressure.ts";
import type { WrittenProcess } from "../config/schema/schema.ts";
import { LISTENER_LIMITS, type ListenerLimits } from "../pipeline/listen/listener-env.ts";
import type { Logger } from "../record/log/logger.ts";
import type { Services } from "./services.ts";

const MIB = 1024 * 1024;
/** This is the estimated memory of a connection. */
const CONNECTION_BYTES = 128 * 1024;
/** The part of it in V8's heap, with the first streams of an HTTP/2 connection. */
const CONNECTION_HEAP_BYTES = 32 * 1024;
const ADDRESS_SHARE = 0.5;
const MIN_PER_ADDRESS = 256;

export function fittingLimits(
  { tunnelIdleTimeout }: Pick<WrittenProcess, "tunnelIdleTimeout">,
  wished: Partial<ListenerLimits> | undefined,
  logger: Logger,
  openFiles = openFilesLimit(),
  memoryBytes = processMemory()().limitBytes,
  heapBytes = oldGeneration(nodeFlags())().limitBytes,
): ListenerLimits {
  const tunnelIdleMs = tunnelIdleTimeout === 0 ? Number.POSITIVE_INFINITY : tunnelIdleTimeout;
  const wanted = { ...LISTENER_LIMITS, tunnelIdleMs, ...wished };
  const openable = connectionsThatFit(openFiles, wanted.maxConnections);
  const holdable = Math.floor(Math.min(memoryBytes / CONNECTION_BYTES, heapBytes / CONNECTION_HEAP_BYTES));
  const maxConnections = Math.min(openable, Math.max(1, holdable));
  if (openable < wanted.maxConnections)
    logger.warn("limit of open files is low (ulimit -n): each listener accepts fewer connections", {
      openFiles,
      connections: openable,
      wantedOpenFiles: 2 * wanted.maxConnections,
    });
  if (maxConnections < openable)
    logger.info("memory is small: each listener accepts fewer connections", {
      memoryMiB: Math.round(memoryBytes / MIB),
      heapMiB: Math.round(heapBytes / MIB),
      connections: maxConnections,
    });
  const share = Math.max(Math.ceil(maxConnections * ADDRESS_SHARE), Math.min(maxConnections, MIN_PER_ADDRESS));
  return {
    ...wanted,
    maxConnections,
    maxConnectionsPerAddress: wished?.maxConnectionsPerAddress ?? share,
    // Each stream may need a connection to a server, as each connection of an HTTP/1.1 client may.
    maxStreamsPerAddress: wished?.maxStreamsPerAddress ?? share,
  };
}

export function watchHeapAndLog(
  { clock, logger, environment, memory }: Pick<Services, "clock" | "logger" | "environment" | "memory">,
  size = tightest(oldGeneration(nodeFlags(environment.NODE_OPTIONS)), processMemory()),
): HeapPressure {
  const log = (level: string, { of = "heap", usedBytes, limitBytes }: HeapSize): void => {
    const sizes = { of, usedMiB: Math.round(usedBytes / MIB), limitMiB: Math.round(limitBytes / MIB) };
    if (level === "full") logger.error("memory is full: new requests are rejected", sizes);
    else if (level === "tight") logger.warn("memory is nearly full: connections are not kept alive", sizes);
    else logger.info("memory is available again", sizes);
  };
  return watchHeap(clock, log, size, collectGarbage, (level) => memory.relieve(level));
}
