/**
 * Loaded into a gateway process with `node --import`: extends the time limit for request heads to an hour, for a test
 * that opens many connections on slow machines.
 */
import { LISTENER_LIMITS } from "../../src/pipeline/listen/listener-env.ts";

Object.assign(LISTENER_LIMITS, { headersTimeoutMs: 3_600_000 });
