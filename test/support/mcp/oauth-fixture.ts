/**
 * A remote MCP server with its own login and authorization server: discovery, registration, PKCE, single-use refresh
 * tokens, and revocation. Its calls return the user of the token.
 */
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface OauthFixture {
  readonly url: string;
  readonly mcpUrl: string;
  /** What was asked at the authorization server. */
  readonly requests: { path: string; form: URLSearchParams; authorization: string | undefined }[];
  /** Access tokens and whom they belong to; take one out to revoke it. */
  readonly tokens: Map<string, string>;
  readonly refreshTokens: Map<string, string>;
  registrations: number;
  lifetimeSeconds: number;
  /** The authorization server of the MCP server: itself, or another fixture. */
  authorizationServer: OauthFixture;
  /** Replaces members of the protected resource metadata and of the authorization server metadata. */
  resourceMetadata: object;
  serverMetadata: object;
  /** The resource that logins must ask for. */
  resource: string;
  /** Who logs in at `/authorize`. */
  browserUser: string;
  /** As the browser of this user would: opens the address and comes back with where it was sent. */
  logIn(authorizationUrl: string, user: string): string;
  close(): Promise<void>;
}

export async function startOauthFixture(): Promise<OauthFixture> {
  let chosen: OauthFixture | undefined;
  const codes = new Map<string, { user: string; challenge: string; redirect: string }>();
  const issue = (user: string): object => {
    const access = `at-${randomBytes(9).toString("hex")}`;
    const refresh = `rt-${randomBytes(9).toString("hex")}`;
    fixture.tokens.set(access, user);
    fixture.refreshTokens.set(refresh, user);
    return { access_token: access, refresh_token: refresh, token_type: "Bearer", expires_in: fixture.lifetimeSeconds };
  };
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const path = (req.url ?? "").split("?", 1)[0] ?? "";
      const json = (status: number, value: object, headers: Record<string, string> = {}): void => {
        res.writeHead(status, { "content-type": "application/json", ...headers });
        res.end(JSON.stringify(value));
      };
      const base = fixture.url;
      if (path === "/mcp") {
        const user = fixture.authorizationServer.tokens.get((req.headers.authorization ?? "").replace("Bearer ", ""));
        if (user === undefined) {
          json(
            401,
            { error: "no" },
            { "www-authenticate": `Bearer resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"` },
          );
          return;
        }
        if (req.method !== "POST") {
          res.writeHead(405).end();
          return;
        }
        const message = JSON.parse(body);
        if (message.id === undefined) res.writeHead(202).end();
        else json(200, { jsonrpc: "2.0", id: message.id, ...answer(message.method, message.params ?? {}, user) });
        return;
      }
      if (path === "/.well-known/oauth-protected-resource/mcp") {
        json(200, {
          resource: fixture.mcpUrl,
          authorization_servers: [fixture.authorizationServer.url],
          scopes_supported: ["read", "write"],
          ...fixture.resourceMetadata,
        });
        return;
      }
      if (path === "/.well-known/oauth-authorization-server") {
        json(200, {
          issuer: base,
          authorization_endpoint: `${base}/authorize`,
          token_endpoint: `${base}/token`,
          registration_endpoint: `${base}/register`,
          revocation_endpoint: `${base}/revoke`,
          response_types_supported: ["code"],
          token_endpoint_auth_methods_supported: ["none"],
          code_challenge_methods_supported: ["S256"],
          ...fixture.serverMetadata,
        });
        return;
      }
      if (path === "/register") {
        fixture.registrations += 1;
        json(201, { ...JSON.parse(body), client_id: `client-${fixture.registrations}` });
        return;
      }
      if (path === "/authorize") {
        res.writeHead(302, { location: fixture.logIn(`${base}${req.url}`, fixture.browserUser) }).end();
        return;
      }
      const form = new URLSearchParams(body);
      fixture.requests.push({ path, form, authorization: req.headers.authorization });
      if (path === "/token") {
        if (form.get("grant_type") === "authorization_code") {
          const code = codes.get(form.get("code") ?? "");
          codes.delete(form.get("code") ?? "");
          const challenge = createHash("sha256")
            .update(form.get("code_verifier") ?? "")
            .digest("base64url");
          if (code && code.challenge === challenge && code.redirect === form.get("redirect_uri"))
            json(200, issue(code.user));
          else json(400, { error: "invalid_grant" });
          return;
        }
        const user = fixture.refreshTokens.get(form.get("refresh_token") ?? "");
        fixture.refreshTokens.delete(form.get("refresh_token") ?? "");
        if (user === undefined) json(400, { error: "invalid_grant" });
        else json(200, issue(user));
        return;
      }
      if (path === "/revoke") {
        fixture.refreshTokens.delete(form.get("token") ?? "");
        res.writeHead(200).end();
        return;
      }
      res.writeHead(404).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fixture: OauthFixture = {
    url,
    mcpUrl: `${url}/mcp`,
    resource: `${url}/mcp`,
    resourceMetadata: {},
    serverMetadata: {},
    get authorizationServer() {
      return chosen ?? fixture;
    },
    set authorizationServer(server) {
      chosen = server;
    },
    requests: [],
    tokens: new Map(),
    refreshTokens: new Map(),
    registrations: 0,
    lifetimeSeconds: 3600,
    browserUser: "somebody",
    logIn(authorizationUrl, user) {
      const asked = new URL(authorizationUrl).searchParams;
      if (asked.get("resource") !== fixture.resource) throw new Error(`resource is ${asked.get("resource")}`);
      const code = randomBytes(9).toString("hex");
      codes.set(code, {
        user,
        challenge: asked.get("code_challenge") ?? "",
        redirect: asked.get("redirect_uri") ?? "",
      });
      const back = new URL(asked.get("redirect_uri") ?? "");
      back.searchParams.set("code", code);
      back.searchParams.set("state", asked.get("state") ?? "");
      return back.href;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return fixture;
}

function answer(method: string, params: Record<string, unknown>, user: string): object {
  switch (method) {
    case "initialize":
      return {
        result: {
          protocolVersion: params.protocolVersion,
          capabilities: { tools: {} },
          serverInfo: { name: "with-login", version: "1" },
        },
      };
    case "tools/list":
      return { result: { tools: [{ name: "whoami", inputSchema: { type: "object" } }] } };
    case "tools/call":
      return { result: { content: [{ type: "text", text: user }] } };
    default:
      return { error: { code: -32601, message: `Method not found: ${method}` } };
  }
}
