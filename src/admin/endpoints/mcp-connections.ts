/**
 * `/debug/mcp/connections`: accounts that users connected at MCP servers with `oauth`. GET lists them; a POST with
 * `{"action": "test" | "revoke", "id": "…"}` tests one or takes it back. No token is shown.
 */
import type { ConnectedAccounts } from "../../core/backend.ts";
import type { Topology } from "../../core/topology.ts";
import { type AdminAnswer, type AdminEndpoint, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function mcpConnectionsEndpoint(topology: () => Topology): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mcpConnections,
    doc: "Accounts that users connected at MCP servers. POST with `action` test or revoke, and `id`.",
    async GET() {
      const lists = await Promise.all(
        accounts(topology()).map(async ({ backend, of }) =>
          (await of.list()).map((account) => ({ backend, ...account })),
        ),
      );
      return jsonAnswer({ connections: lists.flat() });
    },
    async POST(request) {
      const question = questionOf(await request.body());
      if (question === undefined) return textAnswer(400, 'send {"action": "test" or "revoke", "id": "…"} as JSON\n');
      for (const { of } of accounts(topology())) {
        const outcome = await of[question.action](question.id);
        if (outcome) return jsonAnswer(outcome);
      }
      return unknownConnection();
    },
  };
}

function unknownConnection(): AdminAnswer {
  return textAnswer(404, "no connection has this id; `gwctl mcp connections` lists them\n");
}

function accounts({ listeners }: Topology): { backend: string; of: ConnectedAccounts }[] {
  const found = new Map<string, ConnectedAccounts>();
  for (const { routes } of listeners)
    for (const route of routes)
      for (const { backend } of route.backends) if (backend.accounts) found.set(backend.facts.name, backend.accounts);
  return [...found].map(([backend, of]) => ({ backend, of }));
}

function questionOf(body: Buffer): { readonly action: "test" | "revoke"; readonly id: string } | undefined {
  try {
    const { action, id } = JSON.parse(body.toString()) as { action?: unknown; id?: unknown };
    if ((action === "test" || action === "revoke") && typeof id === "string" && id !== "") return { action, id };
  } catch {
    // Said by the answer.
  }
  return undefined;
}
