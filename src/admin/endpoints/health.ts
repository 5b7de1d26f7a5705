/**
 * `/healthz/live`, `/healthz/ready` and `/metrics`: for orchestrators and scrapers; also on `config.statsAddr`.
 */
import type { Metrics } from "../../observe/log/metrics.ts";
import { type AdminEndpoint, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function statsEndpoints(options: { metrics: Metrics; notReady(): readonly string[] }): AdminEndpoint[] {
  return [
    {
      path: ADMIN_PATHS.metrics,
      doc: "Metrics in the Prometheus text format.",
      GET: () => ({ status: 200, type: "text/plain; version=0.0.4; charset=utf-8", body: options.metrics.render() }),
    },
    { path: ADMIN_PATHS.live, doc: "200 while the process runs.", GET: () => textAnswer(200, "live\n") },
    {
      path: ADMIN_PATHS.ready,
      doc: "200 while every listener serves; 503 with the reason otherwise.",
      GET() {
        const pending = options.notReady();
        return pending.length === 0
          ? textAnswer(200, "ready\n")
          : textAnswer(503, `not ready, pending: ${pending.join(", ")}\n`);
      },
    },
  ];
}
