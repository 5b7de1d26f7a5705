/**
 * Defines the jobs of the rehearsal process: a rehearsal or an access review, on recorded requests.
 */
import type { Clock } from "../../base/clock.ts";
import { readTraffic } from "../../record/recorded-request.ts";
import { type AccessFound, type AccessInput, runAccessReview } from "./access.ts";
import { type Rehearsal, type RehearsalInput, rehearse, type YieldThread } from "./rehearse.ts";

export interface RehearsalData {
  readonly input: RehearsalInput;
  readonly segments: readonly Uint8Array[];
}

export interface AccessData {
  readonly access: AccessInput;
  readonly segments: readonly Uint8Array[];
}

export type Job = RehearsalData | AccessData;
export type Found<Data extends Job> = Data extends AccessData ? AccessFound : Rehearsal;

export function runJob(job: Job, clock: Clock, yieldThread: YieldThread): Promise<Rehearsal | AccessFound> {
  const traffic = readTraffic(job.segments);
  if ("access" in job) return runAccessReview(job.access, traffic, clock, yieldThread);
  return rehearse(job.input, traffic, clock, yieldThread);
}
