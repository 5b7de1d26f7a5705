/**
 * How many threads serve. Every thread listens on the same port with a socket of its own, which Node can since 22.12 and
 * Linux shares out evenly; elsewhere, and with sockets of a service manager, one thread serves.
 */
import { availableParallelism } from "node:os";
import type { WrittenProcess } from "../../config/schema/schema.ts";

export interface Surroundings {
  readonly platform: string;
  /** `process.versions.node`. */
  readonly node: string;
  readonly cores: number;
  /** Whether this form of the program can start threads at all. */
  readonly canStart: boolean;
  /** The service manager opened sockets for us: there is one of each. */
  readonly hasInheritedSockets: boolean;
}

export interface ThreadCount {
  readonly count: number;
  /** Why there are fewer than the configuration asks for. */
  readonly warning?: string;
  /** Why `auto` means one. */
  readonly note?: string;
}

export function surroundings(rest: Pick<Surroundings, "canStart" | "hasInheritedSockets">): Surroundings {
  const { platform, versions } = process;
  return { platform, node: versions.node, cores: availableParallelism(), ...rest };
}

/** Parts of the configuration that decide it. */
export type ThreadSettings = Pick<WrittenProcess, "workers" | "telemetry" | "audit" | "store">;

export function threadCount(settings: ThreadSettings, around: Surroundings): ThreadCount {
  const { workers } = settings;
  const wanted = workers === "auto" ? around.cores : (workers ?? 1);
  if (wanted === 1) return { count: 1 };
  const why = obstacle(around) ?? writtenObstacle(settings);
  if (why === undefined) return { count: wanted };
  // Nobody asked for a number that cannot be had.
  return workers === "auto"
    ? { count: 1, note: `config.workers is auto, and one thread serves: ${why}` }
    : { count: 1, warning: `config.workers is ${wanted}, but one thread serves: ${why}` };
}

function obstacle({ platform, node, canStart, hasInheritedSockets }: Surroundings): string | undefined {
  if (!canStart) return "the single executable has one thread; use the npm package";
  if (platform !== "linux") return "threads can share a port on Linux only";
  if (!canSharePorts(node)) return `threads can share a port with Node 22.12 or newer only, and this is ${node}`;
  if (hasInheritedSockets) return "the service manager opened the sockets, and a thread needs one of its own";
  return undefined;
}

/** What has one writer: a file, a folder with a lock, and metrics that one sender counts up. */
function writtenObstacle({ telemetry, audit, store }: ThreadSettings): string | undefined {
  if (telemetry?.otlp !== undefined) return "config.telemetry.otlp works with one thread only";
  if (audit !== undefined) return "config.audit works with one thread only";
  if (typeof store === "object" && "folder" in store) return "config.store.folder works with one thread only";
  return undefined;
}

/** `reusePort` came with 22.12 and 23.1. */
export function canSharePorts(node: string): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major >= 24 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}
