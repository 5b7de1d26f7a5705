/**
 * The real clock, except that sessions wait for all targets to start regardless of the load of the machine.
 */
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { OPEN_WAIT_MS } from "../../../src/mcp/aggregation/aggregate-router.ts";

const PATIENT_MS = 60_000;

export const patientClock: Clock = {
  ...systemClock,
  after: (delayMs, callback) => systemClock.after(delayMs === OPEN_WAIT_MS ? PATIENT_MS : delayMs, callback),
};
