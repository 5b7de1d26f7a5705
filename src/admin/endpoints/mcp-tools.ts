/**
 * `/debug/mcp/tools`: asks every MCP server for its tools and compares them with the lock file. A POST, because it opens
 * connections and starts processes; they end with the answer.
 */
import type { Topology } from "../../core/topology.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function mcpToolsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpTools,
    doc: "POST: the tools of every MCP server, asked for now, and how they differ from the lock file.",
    async POST() {
      const backends = topology()
        .listeners.flatMap(({ routes }) => routes.flatMap((route) => route.backends.map(({ backend }) => backend)))
        .filter((backend) => backend.inspect !== undefined);
      const answers = await Promise.all(
        [...new Set(backends)].map(async (backend) => ({
          backend: backend.facts.name,
          targets: await backend.inspect?.(),
        })),
      );
      return jsonAnswer({ backends: answers });
    },
  };
}
