/**
 * `POST /debug/mcp/sessions` with `{"end": "3f9c02a1…"}` ends one MCP session, by what is shown of its id: its client gets 404
 * and opens another one. What is shown of two sessions is hardly ever the same; then neither is ended.
 */
import type { Topology } from "../../core/topology.ts";
import { type AdminEndpoint, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function mcpSessionsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpSessions,
    doc: 'POST {"end": "<shown id>"}: ends an MCP session.',
    async POST(request) {
      const shown = shownIdOf(await request.body());
      if (shown === undefined) return textAnswer(400, 'send {"end": "<id as /debug/tasks shows it>"} as JSON\n');
      const backends = new Set(
        topology().listeners.flatMap(({ routes }) =>
          routes.flatMap((route) => route.backends.map(({ backend }) => backend)),
        ),
      );
      let found = 0;
      for (const backend of backends) {
        const count = backend.endSession?.(shown) ?? 0;
        if (count > 1) return textAnswer(409, `${count} sessions begin like this; none was ended\n`);
        found += count;
      }
      return found === 0 ? textAnswer(404, "no such session\n") : jsonAnswer({ ended: shown });
    },
  };
}

function shownIdOf(body: Buffer): string | undefined {
  try {
    const { end } = JSON.parse(body.toString()) as { end?: unknown };
    if (typeof end !== "string" || end.length < 8 || end.length > 16) return undefined;
    // Without the sign that something was left out, which few keyboards have.
    return end.endsWith("…") ? end : `${end}…`;
  } catch {
    return undefined;
  }
}
