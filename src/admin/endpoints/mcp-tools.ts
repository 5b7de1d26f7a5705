/**
 * `/debug/mcp/tools`: asks every MCP server for its tools and compares them with the lock file. A POST, because it opens
 * connections and starts processes; they end with the answer. GET tells what sessions saw and clients did not get.
 */
import type { Backend, InspectedBackend, InspectedTarget } from "../../core/backend.ts";
import type { Topology } from "../../core/topology.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function mcpToolsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpTools,
    doc: "Tools withheld from clients. POST: the tools of every MCP server, asked for now, and how they differ from the lock file.",
    GET() {
      const backends = inspectedBackends(topology()).map((backend) => ({
        backend: backend.facts.name,
        targets: backend.withheld?.() ?? [],
      }));
      return jsonAnswer({ backends });
    },
    async POST({ withheld }) {
      const backends = await Promise.all(
        inspectedBackends(topology()).map(async (backend) => ({
          backend: backend.facts.name,
          targets: await inspectedTargets(backend, withheld),
        })),
      );
      return jsonAnswer({ backends });
    },
  };
}

/** Those whose servers can be asked for their tools. */
export function inspectedBackends({ listeners }: Topology): Backend[] {
  const all = listeners.flatMap(({ routes }) =>
    routes.flatMap((route) => route.backends.map(({ backend }) => backend)),
  );
  return [...new Set(all)].filter((backend) => backend.inspect !== undefined);
}

/** `only`: names of servers. One that cannot be asked shows what sessions saw of it, also those of other threads. */
export async function inspectedTargets(
  backend: Backend,
  withheld: readonly InspectedBackend[] = [],
  only?: ReadonlySet<string>,
): Promise<readonly InspectedTarget[]> {
  const seen = withheld.filter((one) => one.backend === backend.facts.name).flatMap(({ targets }) => targets);
  return ((await backend.inspect?.(only)) ?? []).map((target) => {
    if (target.error === undefined) return target;
    const tools = new Map(target.tools.map((tool) => [tool.name, tool]));
    for (const other of seen.filter((one) => one.target === target.target))
      for (const tool of other.tools) tools.set(tool.name, tool);
    return { ...target, tools: [...tools.values()] };
  });
}
