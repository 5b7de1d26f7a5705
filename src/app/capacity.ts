/**
 * What this process can take: connections, by the files that it may open, and requests, by the heap that is left.
 * Less than wanted is logged, because the fix lies outside of the gateway.
 */
import type { Environment } from "../config/text/env.ts";
import type { Logger } from "../lib/log/logger.ts";
import {
  type HeapPressure,
  type HeapSize,
  oldGeneration,
  processMemory,
  tightest,
  watchHeap,
} from "../lib/process/heap-pressure.ts";
import { connectionsThatFit, openFilesLimit } from "../lib/process/open-files.ts";
import { LISTENER_LIMITS, type ListenerLimits } from "../pipeline/listen/listener-env.ts";
import type { Loaded } from "./config-loader.ts";
import type { Doors } from "./doors.ts";

const MIB = 1024 * 1024;

/** The limits of each listener, lowered to what the system allows. */
export function fittingLimits(
  { tunnelIdleTimeout }: Pick<Loaded["process"], "tunnelIdleTimeout">,
  wished: Partial<ListenerLimits> | undefined,
  logger: Logger,
  openFiles = openFilesLimit(),
): ListenerLimits {
  const tunnelIdleMs = tunnelIdleTimeout === 0 ? Number.POSITIVE_INFINITY : tunnelIdleTimeout;
  const wanted = { ...LISTENER_LIMITS, tunnelIdleMs, ...wished };
  const maxConnections = connectionsThatFit(openFiles, wanted.maxConnections);
  if (maxConnections < wanted.maxConnections)
    logger.warn("limit of open files is low (ulimit -n): each listener accepts fewer connections", {
      openFiles,
      connections: maxConnections,
      wantedOpenFiles: 2 * wanted.maxConnections,
    });
  return { ...wanted, maxConnections };
}

export function watchHeapLoudly(
  { clock, logger, environment }: Pick<Doors, "clock" | "logger" | "environment">,
  size = tightest(oldGeneration(nodeFlags(environment)), processMemory()),
): HeapPressure {
  const say = (level: string, { of = "heap", usedBytes, limitBytes }: HeapSize): void => {
    const sizes = { of, usedMiB: Math.round(usedBytes / MIB), limitMiB: Math.round(limitBytes / MIB) };
    if (level === "full") logger.error("memory is full: new requests are rejected", sizes);
    else if (level === "tight") logger.warn("memory is nearly full: connections are not kept alive", sizes);
    else logger.info("memory is available again", sizes);
  };
  return watchHeap(clock, say, size);
}

function nodeFlags(environment: Environment): string[] {
  return [environment.NODE_OPTIONS ?? "", ...process.execArgv];
}
