/**
 * Serves endpoints for the process: `/healthz/live`, `/healthz/ready`, and `/metrics` (also on `config.statsAddr`),
 * `/memory`, `/logging` (GET reads the log filter, POST sets it), `/quitquitquit` (graceful shutdown), `/upgrade`
 * (starts the program on disk and hands over to it), and the index page.
 */

import { getHeapSpaceStatistics, getHeapStatistics } from "node:v8";
import { processMemoryUsage } from "../../base/process-memory.ts";
import { type Logging, parseLogFilter } from "../../record/log/logger.ts";
import { type MetricFamily, renderFamilies } from "../../record/log/metrics.ts";
import { type AdminEndpoint, type AdminResponse, jsonResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export interface StatsOptions {
  collectMetrics(): Promise<readonly MetricFamily[]>;
  notReady(): readonly string[];
}

export function statsEndpoints(options: StatsOptions): AdminEndpoint[] {
  return [
    {
      path: ADMIN_PATHS.metrics,
      doc: "Metrics in the Prometheus text format.",
      GET: async () => ({
        status: 200,
        type: "text/plain; version=0.0.4; charset=utf-8",
        body: renderFamilies(await options.collectMetrics()),
      }),
    },
    { path: ADMIN_PATHS.live, doc: "200 while the process runs.", GET: () => textResponse(200, "live\n") },
    {
      path: ADMIN_PATHS.ready,
      doc: "200 while every listener serves and the store that budgets need is available; 503 with the reason otherwise.",
      GET() {
        const pending = options.notReady();
        return pending.length === 0
          ? textResponse(200, "ready\n")
          : textResponse(503, `not ready, pending: ${pending.join(", ")}\n`);
      },
    },
  ];
}

export function quitEndpoint(shutDown: () => void): AdminEndpoint {
  return {
    path: ADMIN_PATHS.quit,
    doc: "POST: graceful shutdown.",
    POST() {
      setImmediate(shutDown);
      return textResponse(200, "shutting down\n");
    },
  };
}

export type UpgradeResult =
  | { readonly ok: true; readonly pid: number; readonly version: string }
  | { readonly ok: false; readonly reason: string };

export function upgradeEndpoint(upgrade: () => Promise<UpgradeResult>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.upgrade,
    doc: "POST: starts the new version of the program, hands the sockets over, and drains.",
    async POST() {
      const outcome = await upgrade();
      return outcome.ok
        ? textResponse(
            200,
            `upgraded to version ${outcome.version}, process ${outcome.pid}; process ${process.pid} drains\n`,
          )
        : textResponse(500, `not upgraded, process ${process.pid} continues: ${outcome.reason}\n`);
    },
  };
}

export function loggingEndpoint(logging: Logging): AdminEndpoint {
  const current = (): AdminResponse => textResponse(200, `current log level is ${logging.filter.text}\n`);
  return {
    path: ADMIN_PATHS.logging,
    doc: "GET: the log filter. POST ?level=info,mcp=trace: sets it until the next restart.",
    GET(request) {
      if (!request.query.has("level")) return current();
      return { ...textResponse(405, "use POST to set the level\n"), headers: { allow: "POST" } };
    },
    POST(request) {
      const level = request.query.get("level");
      if (level === null) return current();
      const parsed = parseLogFilter(level);
      if (!parsed.ok) return textResponse(400, `${parsed.error}\n`);
      logging.setFilter(parsed.filter);
      return current();
    },
  };
}

export type MemoryParts = Readonly<Record<string, () => unknown>>;

export function memoryEndpoint(parts: MemoryParts): AdminEndpoint {
  return {
    path: ADMIN_PATHS.memory,
    doc: "Memory of the process, the V8 heap by space, external memory, and by component.",
    GET() {
      const { rss, heapTotal, heapUsed, external, arrayBuffers } = processMemoryUsage();
      const heap = getHeapStatistics();
      return jsonResponse({
        process: { rssBytes: rss, peakRssBytes: process.resourceUsage().maxRSS * 1024 },
        heap: {
          usedBytes: heapUsed,
          totalBytes: heapTotal,
          limitBytes: heap.heap_size_limit,
          mallocedBytes: heap.malloced_memory,
          nativeContexts: heap.number_of_native_contexts,
          detachedContexts: heap.number_of_detached_contexts,
          spaces: getHeapSpaceStatistics().map((space) => ({
            name: space.space_name,
            usedBytes: space.space_used_size,
            sizeBytes: space.space_size,
            availableBytes: space.space_available_size,
          })),
        },
        external: { bytes: external, arrayBufferBytes: arrayBuffers },
        parts: Object.fromEntries(Object.entries(parts).map(([name, read]) => [name, read()])),
      });
    },
  };
}

export function indexEndpoint(version: string, endpoints: readonly AdminEndpoint[]): AdminEndpoint {
  const rows = endpoints.map((endpoint) => {
    const methods = [endpoint.GET && "GET", endpoint.POST && "POST"].filter(Boolean).join(", ");
    const path = endpoint.GET ? `<a href="${endpoint.path}">${endpoint.path}</a>` : endpoint.path;
    return `<tr><td><code>${methods}</code></td><td><code>${path}</code></td><td>${escapeHtml(endpoint.doc)}</td></tr>`;
  });
  const body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gateway admin</title></head>
<body><h1>gateway ${escapeHtml(version)}</h1>
<table><thead><tr><th>methods</th><th>path</th><th>what it does</th></tr></thead><tbody>
${rows.join("\n")}
</tbody></table></body></html>
`;
  return {
    path: ADMIN_PATHS.index,
    doc: "This page.",
    GET: () => ({
      status: 200,
      type: "text/html; charset=utf-8",
      body,
      headers: { "content-security-policy": "default-src 'none'; frame-ancestors 'none'" },
    }),
  };
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
}
