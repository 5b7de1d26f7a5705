/**
 * `/memory` (spec 4.2): what the process takes, what of it is V8's heap by space, what lies outside of it, and how
 * much the parts of the gateway hold.
 */
import { getHeapSpaceStatistics, getHeapStatistics } from "node:v8";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

/** A part of the gateway that holds memory: counts, and bytes where they are known. */
export type MemoryParts = Readonly<Record<string, () => unknown>>;

export function memoryEndpoint(parts: MemoryParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.memory,
    doc: "Memory of the process, the V8 heap by space, external memory, and by component.",
    GET() {
      const { rss, heapTotal, heapUsed, external, arrayBuffers } = process.memoryUsage();
      const heap = getHeapStatistics();
      return jsonAnswer({
        process: { rssBytes: rss, peakRssBytes: process.resourceUsage().maxRSS * 1024 },
        heap: {
          usedBytes: heapUsed,
          totalBytes: heapTotal,
          limitBytes: heap.heap_size_limit,
          mallocedBytes: heap.malloced_memory,
          nativeContexts: heap.number_of_native_contexts,
          detachedContexts: heap.number_of_detached_contexts,
          spaces: getHeapSpaceStatistics().map((space) => ({
            name: space.space_name,
            usedBytes: space.space_used_size,
            sizeBytes: space.space_size,
            availableBytes: space.space_available_size,
          })),
        },
        // Buffers are counted in both: `arrayBuffers` is part of `external`.
        external: { bytes: external, arrayBufferBytes: arrayBuffers },
        parts: Object.fromEntries(Object.entries(parts).map(([name, read]) => [name, read()])),
      });
    },
  };
}
