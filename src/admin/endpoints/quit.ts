/**
 * `/quitquitquit` (spec 4.2): starts the same graceful shutdown as a SIGTERM, after the answer was sent.
 */
import { type AdminEndpoint, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function quitEndpoint(shutDown: () => void): AdminEndpoint {
  return {
    path: ADMIN_PATHS.quit,
    doc: "POST: graceful shutdown.",
    POST() {
      setImmediate(shutDown);
      return textAnswer(200, "shutting down\n");
    },
  };
}
