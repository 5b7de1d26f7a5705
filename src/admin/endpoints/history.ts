/**
 * `/debug/history`: a day of traffic at most, in slots, for the numbers at the top of the UI.
 */
import { HISTORY_SECONDS, type TrafficHistory } from "../../pipeline/records/traffic-history.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { numberParameter } from "../server/parameter.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const SECONDS = { name: "seconds", min: 10, max: HISTORY_SECONDS, default: 300 };

export function historyEndpoint(history: TrafficHistory): AdminEndpoint {
  return {
    path: ADMIN_PATHS.history,
    doc: "Requests, failures, p95, tokens and cost over time: ?seconds=<10 to 86400>, default 300.",
    GET({ query }) {
      const seconds = numberParameter(query, SECONDS);
      return seconds.ok ? jsonAnswer(history.report(seconds.value)) : seconds.refusal;
    },
  };
}
