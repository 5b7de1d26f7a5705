/**
 * The pages where users connect their accounts at MCP servers that want a login of their own: one that asks, and the one
 * that the authorization server sends the browser back to. On a route of its own, without authentication: a browser has
 * no token of the gateway, the ticket in the address says who is meant, and the page shows it.
 */
import { randomBytes } from "node:crypto";
import { z } from "zod";
import { type Backend, defineBackend } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { Reply } from "../../core/reply.ts";
import { HeaderList } from "../../lib/http/headers.ts";
import { LoginRegistry } from "../../mcp/logins/login-registry.ts";
import { escaped, page } from "./page.ts";

const TIMEOUT_MS = 60_000;
const COOKIE = "mcp-connect";

export const mcpLogins = defineBackend({
  key: "mcpLogins",
  doc: "The pages where users connect their accounts at MCP servers with `oauth`.",
  schema: z.strictObject({}),
  defaultPaths: [{ pathPrefix: "/connect" }],

  compile(_config, env): Backend {
    const registry = env.keep("mcp logins", "all", () => new LoginRegistry());
    const logger = env.logger.for("mcp");
    return {
      facts: { name: env.name, type: "internal", protocol: "http" },
      defaultTimeoutMs: TIMEOUT_MS,
      prepare: (exchange) =>
        answer(exchange, registry).catch((error: unknown) => {
          logger.warn("MCP account could not be connected", {
            reason: error instanceof Error ? error.message : String(error),
          });
          return page(
            502,
            "The account could not be connected",
            "Try again from your assistant. The log of the gateway says why.",
          );
        }),
      // `prepare` answers every request; a call would be a defect.
      call(_exchange, call) {
        call.fail(new Error("the connect pages were called"));
        return { abort: () => undefined, resume: () => undefined };
      },
      describe: () => ({}),
    };
  },
});

async function answer({ request }: Exchange, registry: LoginRegistry): Promise<Reply> {
  const query = new URLSearchParams(request.query.replace(/^\?/, ""));
  if (request.path.endsWith("/start")) {
    const ticket = query.get("ticket") ?? "";
    if (request.method === "GET") return asking(registry, ticket);
    if (request.method === "POST") return begun(request, registry, ticket);
  } else if (request.path.endsWith("/callback") && request.method === "GET") return finished(request, registry, query);
  return page(404, "Not found", "Open the address that your assistant shows.");
}

async function asking(registry: LoginRegistry, ticket: string): Promise<Reply> {
  const found = await registry.invitation(ticket);
  if (!found) return expired();
  const { login, invitation } = found;
  const server = escaped(new URL(login.serverUrl).host);
  const user = escaped(userOf(invitation.principal));
  return page(
    200,
    `Connect ${login.targetName}`,
    `The gateway asks for access to <b>${server}</b> for the gateway user <b>${user}</b>. If that is not you, close this page.`,
    `<form method="post" action="start?ticket=${escaped(encodeURIComponent(ticket))}"><button>Connect</button></form>`,
  );
}

async function begun(request: Exchange["request"], registry: LoginRegistry, ticket: string): Promise<Reply> {
  const { headers } = request;
  const site = headers.get("sec-fetch-site");
  if (site !== undefined && site !== "same-origin" && site !== "none")
    return page(403, "Not allowed", "Open the address that your assistant shows.");
  const found = await registry.accept(ticket);
  if (!found) return expired();
  const browser = randomBytes(24).toString("base64url");
  const location = await found.login.begin(found.invitation, browser);
  const { protocol, pathname } = new URL(found.login.redirectUri);
  const path = pathname.replace(/\/callback$/, "") || "/";
  const cookie = `${COOKIE}=${browser}; HttpOnly; SameSite=Lax; Path=${path}; Max-Age=600${protocol === "https:" ? "; Secure" : ""}`;
  return {
    status: 303,
    headers: HeaderList.of({
      location,
      "set-cookie": cookie,
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
    }),
    body: undefined,
    confidential: true,
  };
}

async function finished(request: Exchange["request"], registry: LoginRegistry, query: URLSearchParams): Promise<Reply> {
  const found = await registry.returned(query.get("state") ?? "");
  if (!found) return expired();
  const code = query.get("code");
  if (code === null)
    return page(
      400,
      "The account was not connected",
      escaped(`The server said: ${(query.get("error") ?? "nothing").slice(0, 200)}`),
    );
  const browser = new RegExp(`(?:^|; *)${COOKIE}=([\\w-]+)`).exec(request.headers.get("cookie") ?? "")?.[1] ?? "";
  await found.login.finish(found.flow, { code, issuer: query.get("iss") ?? undefined, browser });
  return page(200, `${found.login.targetName} is connected`, "You can close this page and repeat your request.");
}

function expired(): Reply {
  return page(
    410,
    "This address is no longer valid",
    "Ask your assistant again for a new one: each works once, for ten minutes.",
  );
}

/** The subject for people; the issuer tells two of the same name apart. */
function userOf(principal: string): string {
  const shown = shownPrincipal(principal);
  const jwt = /^jwt:(\[.*\])$/s.exec(shown)?.[1];
  if (jwt === undefined) return shown;
  const [issuer, subject] = JSON.parse(jwt) as [string, string];
  return `${subject} (${issuer})`;
}
