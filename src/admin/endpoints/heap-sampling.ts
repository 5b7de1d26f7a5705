/**
 * Samples allocations from the start of the process, one per half a megabyte, so that a heap profile shows what
 * still lives of all of them. V8 does it inside the process; starting costs 3 ms, running it is not measurable.
 */
import { Session } from "node:inspector";
import type { AllocationProfileNode } from "@datadog/pprof";

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

/** Where it does not run (other platforms), profiles are well-formed and empty (spec 4.2). */
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
        session.post("HeapProfiler.getSamplingProfile", (error, answer) => {
          if (error) reject(error);
          else resolve(convert(answer.profile as unknown as { head: SampledNode; samples?: readonly Sample[] }));
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
    // The inspector counts from 0, pprof from 1.
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
