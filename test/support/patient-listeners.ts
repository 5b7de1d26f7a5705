/**
 * Loaded into a gateway process before the gateway (`node --import`): clients have an hour for their heads. For a test that
 * opens so many connections that the first would be closed on a slow machine before the last is open.
 */
import { LISTENER_LIMITS } from "../../src/pipeline/listen/listener-env.ts";

Object.assign(LISTENER_LIMITS, { headersTimeoutMs: 3_600_000 });
