/**
 * Enables operators to list, test, and revoke the accounts that users connected at the servers of a backend. The output
 * never contains tokens.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import type { ConnectedAccounts } from "../../core/backend.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Connection, ServerLogin } from "./server-login.ts";
import { placeName } from "./vault.ts";

const TEST_MS = 15_000;
const MAX_TEST_BYTES = 1024 * 1024;
const TEST_RESPONSE = peerInput("mcp-server/http-response").upTo(MAX_TEST_BYTES);
const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "gateway", version: "1" } },
});

export function createAccounts(
  logins: readonly ServerLogin[],
  { fetch }: { readonly fetch: Fetch },
): ConnectedAccounts {
  async function find(id: string): Promise<{ login: ServerLogin; connection: Connection } | undefined> {
    for (const login of logins)
      for (const { value } of await login.connections())
        if (accountId(login, value.principal) === id) return { login, connection: value };
    return undefined;
  }
  return {
    async list() {
      const lists = await Promise.all(
        logins.map(async (login) => (await login.connections()).map(({ value }) => shown(login, value))),
      );
      return lists.flat();
    },
    async test(id) {
      const found = await find(id);
      return found && tested(found.login, found.connection.principal, fetch);
    },
    async revoke(id) {
      for (const login of logins) login.forgetCached();
      const found = await find(id);
      if (!found) return undefined;
      const isTakenBack = await found.login.revoke(found.connection.principal);
      return {
        ok: true,
        reason: isTakenBack ? "the server took the token back" : "forgotten here; the server did not take it back",
      };
    },
  };
}

function shown(login: ServerLogin, { principal, tokens, connectedAtMs }: Connection) {
  return {
    id: accountId(login, principal),
    target: login.targetName,
    server: new URL(login.serverUrl).host,
    user: shownPrincipal(principal),
    connectedAt: new Date(connectedAtMs).toISOString(),
    expiresAt: new Date(tokens.expiresAtMs).toISOString(),
    renews: tokens.refreshToken !== undefined,
    scope: tokens.scope ?? null,
  };
}

function accountId(login: ServerLogin, principal: string): string {
  return placeName(login.id, login.serverUrl, principal).slice(0, 16);
}

async function tested(
  login: ServerLogin,
  principal: string,
  fetch: Fetch,
): Promise<{ readonly ok: boolean; readonly reason: string }> {
  try {
    const token = await login.token(principal);
    if (token === undefined) return { ok: false, reason: "the login has ended: the user must connect again" };
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    };
    const limits = { timeoutMs: TEST_MS, input: TEST_RESPONSE };
    const answer = await fetch({
      url: login.serverUrl,
      method: "POST",
      headers,
      body: Buffer.from(INITIALIZE),
      ...limits,
    });
    const session = answer.headers.get("mcp-session-id");
    if (session !== undefined)
      await fetch({
        url: login.serverUrl,
        method: "DELETE",
        headers: { ...headers, "mcp-session-id": session },
        ...limits,
      }).catch(() => undefined);
    const ok = answer.status < 300;
    return { ok, reason: ok ? "the server accepts the token" : `the server returned status ${answer.status}` };
  } catch (error) {
    return { ok: false, reason: error instanceof Error ? error.message : String(error) };
  }
}
