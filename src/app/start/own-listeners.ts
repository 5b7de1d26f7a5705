/**
 * The listeners of this thread, with everything that requests need of the process.
 */
import type { InheritedSockets } from "../../pipeline/listen/inherited-sockets.ts";
import type { ListenerLimits } from "../../pipeline/listen/listener-env.ts";
import { createListeners, type Listeners } from "../../pipeline/listen/listeners.ts";
import { trustedPeers } from "../../pipeline/listen/trusted-peers.ts";
import { fittingLimits } from "../capacity.ts";
import type { Loaded } from "../config-loader.ts";
import type { Services } from "../services.ts";
import type { Measuring } from "./measure.ts";

export function ownListeners(
  { clock, logger, tasks, unexpected, memory }: Services,
  { process: settings, redaction }: Loaded,
  { ids, random, records, heap }: Measuring,
  inherited: InheritedSockets,
  limits: Partial<ListenerLimits> | undefined,
): Listeners {
  return createListeners({
    clock,
    inherited,
    limits: fittingLimits(settings, limits, logger),
    heap,
    memory,
    logger: logger.for("pipeline"),
    tasks,
    redaction,
    ids,
    random,
    isTrustedPeer: trustedPeers(settings.trustedProxies ?? []),
    trace: records.trace,
    settled: records.settled,
    defect: records.defect,
    unexpected: (error, client) => unexpected.report("connection", error, { client }),
  });
}
