/**
 * `GET /debug/shadow`: what policies in `mode: shadow` would have denied since the start.
 */
import type { ShadowReport } from "../../pipeline/records/shadow-report.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function shadowEndpoint(report: () => ShadowReport): AdminEndpoint {
  return {
    path: ADMIN_PATHS.shadow,
    doc: "What policies in shadow mode would have denied: rule, subjects, counts, examples.",
    GET: () => jsonAnswer(report()),
  };
}
