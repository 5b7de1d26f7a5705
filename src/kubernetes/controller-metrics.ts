/**
 * Registers the metrics of `gateway controller`, which are read from its state when they are scraped.
 */
import type { Metrics } from "../record/log/metrics.ts";
import type { ControllerState } from "./controller.ts";

/** `state` returns undefined until the controller has started. */
export function registerControllerMetrics(metrics: Metrics, state: () => ControllerState | undefined): void {
  const named = (kinds: readonly string[] = []) => kinds.map((kind) => [{ kind }, 1] as const);
  metrics.gauge("gateway_controller_leader", "1 if this replica writes to the cluster.", () =>
    Number(state()?.isLeader ?? false),
  );
  metrics.gauge("gateway_controller_connected", "1 if this replica reaches the API server.", () =>
    Number(state()?.isConnected ?? false),
  );
  metrics.gauge("gateway_controller_kind_unreadable", "1 for each kind of policies that can no longer be read.", () =>
    named(state()?.unreadable),
  );
  metrics.gauge("gateway_controller_kind_pending", "1 for each kind that has not been listed yet.", () =>
    named(state()?.waitingFor),
  );
  metrics.gauge(
    "gateway_controller_held_objects",
    "Gateways and routes that wait because policies cannot be read.",
    () => state()?.held ?? 0,
  );
  metrics.gauge("gateway_controller_gateways", "Gateways of this controller.", () => state()?.gateways ?? 0);
  metrics.gauge(
    "gateway_controller_deploy_failures",
    "Gateways whose data planes cannot be deployed; their status has the reason.",
    () => state()?.deployFailures ?? 0,
  );
  metrics.total(
    "gateway_controller_status_writes_total",
    "Statuses that this replica wrote.",
    () => state()?.statusWrites ?? 0,
  );
  metrics.gauge(
    "gateway_controller_reconcile_seconds",
    "Duration of the last translation of the cluster.",
    () => (state()?.reconcileMs ?? 0) / 1000,
  );
}
