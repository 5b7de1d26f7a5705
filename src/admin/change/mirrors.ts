/**
 * `GET /debug/mirrors`: how answers of mirrors differ from the backends', where `requestMirror` compares them.
 */
import type { MirrorReport } from "../../pipeline/records/mirror-report.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function mirrorsEndpoint(report: () => MirrorReport): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mirrors,
    doc: "How answers of mirrors differ from the backends': status, shape of JSON, time, examples.",
    GET: () => jsonAnswer(report()),
  };
}
