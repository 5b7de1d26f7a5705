/**
 * Shows the charts of a tool, model, key, user, or route that is selected in a table.
 */
import type { Scope } from "../data/traffic.ts";
import { pageHref } from "../frame/router.ts";
import { visible } from "./format.ts";
import { type ChartName, TrafficChart } from "./traffic-chart.tsx";

export function ScopeCharts({
  name,
  scope,
  charts,
  requests,
  onClose,
}: {
  name: string;
  scope: Scope;
  charts: readonly (readonly [name: ChartName, title: string])[];
  /** The filters of the Requests page that select the same requests, if there are such filters. */
  requests?: Readonly<Record<string, string>>;
  onClose: () => void;
}) {
  return (
    <section class="inset stack" aria-label={`Charts of ${visible(name)}`}>
      <div class="row between">
        <h3 class="mono">{visible(name)}</h3>
        <span class="row">
          {requests === undefined ? null : <a href={pageHref("requests", requests)}>View requests</a>}
          <button type="button" class="button quiet" data-close onClick={onClose}>
            Close
          </button>
        </span>
      </div>
      <div class="charts">
        {charts.map(([chart, title]) => (
          <div key={chart}>
            <h3>{title}</h3>
            <TrafficChart name={chart} scope={scope} height={140} />
          </div>
        ))}
      </div>
    </section>
  );
}
