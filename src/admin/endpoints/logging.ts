/**
 * `/logging` (spec 4.2): GET reads the log filter, POST with `level` sets it; nothing changes on GET.
 */
import { parseLogFilter } from "../../observe/log/log-filter.ts";
import type { Logging } from "../../observe/log/logger.ts";
import { type AdminAnswer, type AdminEndpoint, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function loggingEndpoint(logging: Logging): AdminEndpoint {
  const current = (): AdminAnswer => textAnswer(200, `current log level is ${logging.filter.text}\n`);
  return {
    path: ADMIN_PATHS.logging,
    doc: "GET: the log filter. POST ?level=info,mcp=trace: sets it until the next restart.",
    GET(request) {
      if (!request.query.has("level")) return current();
      return { ...textAnswer(405, "use POST to set the level\n"), headers: { allow: "POST" } };
    },
    POST(request) {
      const level = request.query.get("level");
      if (level === null) return current();
      const parsed = parseLogFilter(level);
      if (!parsed.ok) return textAnswer(400, `${parsed.error}\n`);
      logging.setFilter(parsed.filter);
      return current();
    },
  };
}
