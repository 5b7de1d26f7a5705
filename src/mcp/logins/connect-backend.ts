/**
 * Serves the pages where users connect their accounts at MCP servers with `oauth`. The ticket in the URL identifies the
 * gateway user. Only the browser that started a login can finish it.
 */
import { randomBytes } from "node:crypto";
import { z } from "zod";
import { type Form, readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { type Backend, defineBackend } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import { personDescription } from "../../core/principal.ts";
import type { Reply } from "../../core/reply.ts";
import { HeaderList } from "../../http/headers.ts";
import { BrowserCookie, foreignOrigin } from "../../identity/login/browser-flow.ts";
import { type Flow, LoginRegistry, type ServerLogin } from "./server-login.ts";

const QUERY = peerInput("client/query");

const TIMEOUT_MS = 60_000;
const COOKIE_SECONDS = 600;
/** Each login has a separate cookie, whose name contains the beginning of the state. */
const STATE_CHARS = 8;

export const mcpLogins = defineBackend({
  key: "mcpLogins",
  doc: "The pages where users connect their accounts at MCP servers with `oauth`.",
  schema: z.strictObject({}),
  defaultPaths: [{ pathPrefix: "/connect" }],
  protection: () => "none",

  compile(_config, env): Backend {
    const registry = env.acquireShared("mcp logins", () => new LoginRegistry());
    const logger = env.logger.for("mcp");
    return {
      attributes: { name: env.name, type: "internal", protocol: "http" },
      defaultTimeoutMs: TIMEOUT_MS,
      parsesBody: true,
      prepare: (exchange) =>
        answer(exchange, registry).catch((error: unknown) => {
          logger.warn("MCP account could not be connected", {
            reason: error instanceof Error ? error.message : String(error),
          });
          return page(
            502,
            "The account could not be connected",
            "Try again from your assistant. The log of the gateway has the reason.",
          );
        }),
      describe: () => ({}),
    };
  },
});

async function answer({ request }: Exchange, registry: LoginRegistry): Promise<Reply> {
  const query = readForm(QUERY, request.query.replace(/^\?/, ""));
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
  const user = escaped(invitation.person ?? personDescription({}, invitation.principal));
  return page(
    200,
    `Connect ${login.targetName}`,
    `The gateway asks for access to <b>${server}</b> for the gateway user <b>${user}</b>. If that is not you, close this page.`,
    `<form method="post" action="start?ticket=${escaped(encodeURIComponent(ticket))}"><button>Connect</button></form>`,
  );
}

async function begun(request: Exchange["request"], registry: LoginRegistry, ticket: string): Promise<Reply> {
  const invited = await registry.invitation(ticket);
  if (!invited) return expired();
  const { origin } = new URL(invited.login.redirectUri);
  // The ticket stays valid, so that a page of another site cannot invalidate it.
  if (foreignOrigin(request, origin) !== undefined)
    return page(
      403,
      "Not allowed",
      escaped(`Open the address that your assistant shows, and press Connect there. The page must be at ${origin}.`),
    );
  const found = await registry.accept(ticket);
  if (!found) return expired();
  const secret = randomBytes(24).toString("base64url");
  const { url, state } = await found.login.begin(found.invitation, secret);
  return {
    status: 303,
    headers: HeaderList.of({
      location: url,
      "set-cookie": flowCookie(state, found.login.redirectUri).line(secret, COOKIE_SECONDS),
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
    }),
    body: undefined,
    confidential: true,
  };
}

async function finished(request: Exchange["request"], registry: LoginRegistry, query: Form): Promise<Reply> {
  const state = query.get("state") ?? "";
  const found = await registry.returned(state, ({ redirectUri }) =>
    flowCookie(state, redirectUri).read(request.headers),
  );
  if (!found) return expired();
  if (found === "other browser")
    return page(
      400,
      "The login was not started in this browser",
      "Finish it in the browser where you pressed Connect, and allow cookies there. The login is still open: reload this page there, or ask your assistant for a new address.",
    );
  const reply = await connected(found, query);
  reply.headers.add("set-cookie", flowCookie(state, found.login.redirectUri).clearing());
  return reply;
}

async function connected({ login, flow }: { login: ServerLogin; flow: Flow }, query: Form): Promise<Reply> {
  const code = query.get("code");
  if (code === null)
    return page(
      400,
      "The account was not connected",
      escaped(`The server said: ${(query.get("error") ?? "nothing").slice(0, 200)}`),
    );
  await login.finish(flow, { code, issuer: query.get("iss") ?? undefined });
  return page(200, `${login.targetName} is connected`, "You can close this page and repeat your request.");
}

function flowCookie(state: string, url: string): BrowserCookie {
  return new BrowserCookie(`connect_${state.slice(0, STATE_CHARS)}`, url);
}

function expired(): Reply {
  return page(
    410,
    "This address is no longer valid",
    "Ask your assistant again for a new one: each works once, for ten minutes.",
  );
}

/**
 * `text` and `more` are HTML, and the title is plain text. The referrer policy is not `no-referrer`, because browsers
 * would then send `Origin: null` with the form, and the gateway checks the origin.
 */
export function page(status: number, title: string, text: string, more = ""): Reply {
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title><style>body{font:16px/1.5 system-ui;margin:15vh auto;max-width:32rem;padding:0 1rem}
button{font:inherit;padding:.5rem 1.5rem}</style><h1>${escaped(title)}</h1><p>${text}</p>${more}</html>\n`;
  return {
    status,
    headers: HeaderList.of({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      "referrer-policy": "same-origin",
      "x-content-type-options": "nosniff",
      "content-security-policy":
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    }),
    body: Buffer.from(html),
    confidential: true,
  };
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
