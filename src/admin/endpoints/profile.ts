/**
 * `/debug/pprof/profile` and `/debug/pprof/heap` (spec 4.2, 8) return profiles in the pprof format for `go tool
 * pprof`. The native profiler is loaded at first use, and each thread runs one profile at a time.
 */

import { Session } from "node:inspector";
import type { AllocationProfileNode } from "@datadog/pprof";
import type { Clock } from "../../base/clock.ts";
import { isOneFile } from "../../base/embedded-files.ts";
import { exportsOf } from "../../base/exports-of.ts";
import type { Logger } from "../../record/log/logger.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  numberParameter,
  textResponse,
  unknownParameter,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const SECONDS = { name: "seconds", min: 1, max: 300, default: 10 };
const FREQUENCY = { name: "frequency", min: 1, max: 1000, default: 100 };
const PPROF_TYPE = "application/octet-stream";
const BUSY = "another profile is running; try again later\n";

/**
 * The profiler is an optional dependency. It is missing in a package installed without it and in the single executable.
 */
const NOT_INSTALLED = new Set(["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND", "ERR_UNKNOWN_BUILTIN_MODULE"]);
const INSTALL_IT = "the profiler is not installed; install the optional package @datadog/pprof beside the gateway\n";
const NOT_IN_ONE_FILE = "the single executable contains no profiler; take profiles with the npm package\n";

type Pprof = typeof import("@datadog/pprof");

export interface ProfileEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly heap: HeapSampling;
  readonly platform: string;
}

export function profileEndpoints(env: ProfileEnv): AdminEndpoint[] {
  const { clock, logger } = env;
  let busy = false;

  async function cpu({ query, method }: AdminRequest): Promise<AdminResponse> {
    const unknown = unknownParameter(query, [SECONDS.name, FREQUENCY.name]);
    if (unknown !== undefined) return unknown;
    const seconds = numberParameter(query, SECONDS);
    if (!seconds.ok) return seconds.rejection;
    const frequency = numberParameter(query, FREQUENCY);
    if (!frequency.ok) return frequency.rejection;
    if (busy) return textResponse(409, BUSY);
    if (method === "HEAD") return { status: 200, type: PPROF_TYPE, body: "" };
    busy = true;
    let pprof: Pprof;
    try {
      pprof = await loadPprof();
    } catch (error) {
      busy = false;
      return notLoadable(error);
    }
    return {
      status: 200,
      type: PPROF_TYPE,
      headers: { "content-disposition": 'attachment; filename="cpu.pb.gz"' },
      stream(sink) {
        try {
          pprof.time.start({
            durationMillis: seconds.value * 1000,
            intervalMicros: Math.round(1_000_000 / frequency.value),
            // Without these options the profile measures wall time, and an idle gateway looks busy.
            withContexts: true,
            collectCpuTime: true,
          });
        } catch (error) {
          busy = false;
          throw error;
        }
        let profiling = true;
        const stop = (): ReturnType<Pprof["time"]["stop"]> | undefined => {
          if (!profiling) return undefined;
          profiling = false;
          busy = false;
          timer.cancel();
          return pprof.time.stop(false);
        };
        const timer = clock.after(seconds.value * 1000, () => {
          const profile = stop();
          if (!profile) return;
          pprof.encode(profile).then(
            (bytes) => {
              sink.write(bytes);
              sink.end();
            },
            (error) => {
              logger.error("profile could not be encoded", { error: String(error) });
              sink.end();
            },
          );
        });
        sink.onClose(() => void stop());
      },
    };
  }

  async function heap(): Promise<AdminResponse> {
    if (busy) return textResponse(409, BUSY);
    busy = true;
    try {
      const pprof = await loadPprof();
      const profile = pprof.heap.convertProfile(await env.heap.read());
      return {
        status: 200,
        type: PPROF_TYPE,
        headers: { "content-disposition": 'attachment; filename="heap.pb.gz"' },
        body: await pprof.encode(profile),
      };
    } catch (error) {
      return notLoadable(error);
    } finally {
      busy = false;
    }
  }

  const heapEndpoint: AdminEndpoint = {
    path: ADMIN_PATHS.heapProfile,
    doc: "Heap profile (pprof): what was allocated since the start and still lives; samples on Linux only.",
    GET: heap,
  };
  if (env.platform !== "linux") return [heapEndpoint];
  return [
    {
      path: ADMIN_PATHS.cpuProfile,
      doc: "CPU profile (pprof): ?seconds=1…300 (default 10), ?frequency=1…1000 Hz (default 100).",
      GET: cpu,
    },
    heapEndpoint,
  ];
}

async function loadPprof(): Promise<Pprof> {
  return exportsOf(await import("@datadog/pprof"));
}

function notLoadable(error: unknown): AdminResponse {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (NOT_INSTALLED.has(code)) return textResponse(501, isOneFile() ? NOT_IN_ONE_FILE : INSTALL_IT);
  return textResponse(
    501,
    `the profiler is not available: ${error instanceof Error ? error.message : String(error)}\n`,
  );
}

const BYTES_PER_SAMPLE = 512 * 1024;

export interface HeapSampling {
  read(): Promise<AllocationProfileNode>;
  stop(): void;
}

interface SampledNode {
  readonly id: number;
  readonly callFrame: {
    readonly functionName: string;
    readonly scriptId: string;
    readonly url: string;
    readonly lineNumber: number;
    readonly columnNumber: number;
  };
  readonly children: readonly SampledNode[];
}

interface Sample {
  readonly size: number;
  readonly nodeId: number;
}

/** On unsupported platforms, profiles are valid and empty (spec 4.2). */
export const noHeapSampling: HeapSampling = {
  read: () => Promise.resolve(emptyRoot()),
  stop: () => undefined,
};

export function startHeapSampling(): HeapSampling {
  const session = new Session();
  session.connect();
  session.post("HeapProfiler.startSampling", { samplingInterval: BYTES_PER_SAMPLE });
  return {
    read: () =>
      new Promise((resolve, reject) => {
        session.post("HeapProfiler.getSamplingProfile", (error, response) => {
          if (error) reject(error);
          else resolve(convert(response.profile as unknown as { head: SampledNode; samples?: readonly Sample[] }));
        });
      }),
    stop: () => session.disconnect(),
  };
}

function convert({ head, samples = [] }: { head: SampledNode; samples?: readonly Sample[] }): AllocationProfileNode {
  const sizes = new Map<number, number[]>();
  for (const { nodeId, size } of samples) {
    const known = sizes.get(nodeId);
    if (known) known.push(size);
    else sizes.set(nodeId, [size]);
  }
  const node = ({ id, callFrame, children }: SampledNode): AllocationProfileNode => ({
    name: callFrame.functionName,
    scriptName: callFrame.url,
    scriptId: Number(callFrame.scriptId),
    // The inspector counts lines from 0, and pprof counts them from 1.
    lineNumber: callFrame.lineNumber + 1,
    columnNumber: callFrame.columnNumber + 1,
    children: children.map(node),
    allocations: (sizes.get(id) ?? []).map((sizeBytes) => ({ sizeBytes, count: 1 })),
  });
  return node(head);
}

function emptyRoot(): AllocationProfileNode {
  return {
    name: "(root)",
    scriptName: "",
    scriptId: 0,
    lineNumber: 0,
    columnNumber: 0,
    children: [],
    allocations: [],
  };
}
