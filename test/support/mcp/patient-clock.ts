/**
 * The real time, except that a session waits for all its targets to start however busy the machine is. Tests of what
 * happens after that wait advance a clock of their own.
 */
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { OPEN_WAIT_MS } from "../../../src/mcp/aggregation/aggregate-router.ts";

const PATIENT_MS = 60_000;

export const patientClock: Clock = {
  ...systemClock,
  after: (delayMs, callback) => systemClock.after(delayMs === OPEN_WAIT_MS ? PATIENT_MS : delayMs, callback),
};
