/**
 * Describes the machine of a run: processor, memory, kernel, and the load by other work when the run starts.
 */
import { availableParallelism, cpus, loadavg, release, totalmem, type } from "node:os";

export function describeMachine() {
  return {
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: `${type()} ${release().split("-")[0]}`,
    loadAverage: Number(loadavg()[0].toFixed(2)),
  };
}
