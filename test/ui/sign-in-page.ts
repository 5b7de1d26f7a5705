/**
 * The smallest identity provider that a real browser can sign in at: a page with one button, registration for
 * everybody, codes that need their PKCE verifier, tokens for one audience, ID tokens with roles.
 */
import { createHash, randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";

export interface SignInPage {
  readonly issuer: string;
  close(): Promise<void>;
}

export async function openSignInPage(audience: string, roles: () => readonly string[] = () => []): Promise<SignInPage> {
  const key = createSigningKey("RS256", "key-1");
  const asked = new Map<string, URLSearchParams>();
  const server = createServer((request, response) => {
    serve(request, response).catch((error: Error) => json(response, 500, { error: error.message }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const issuer = `${origin}/realms/test`;

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", origin);
    switch (url.pathname) {
      case "/realms/test/.well-known/openid-configuration":
        return json(response, 200, {
          issuer,
          authorization_endpoint: `${origin}/authorize`,
          token_endpoint: `${origin}/token`,
          jwks_uri: `${issuer}/protocol/openid-connect/certs`,
          registration_endpoint: `${origin}/register`,
          end_session_endpoint: `${origin}/signed-out`,
          code_challenge_methods_supported: ["S256"],
        });
      case "/realms/test/protocol/openid-connect/certs":
        return json(response, 200, keySetOf(key));
      case "/register":
        return json(response, 201, { ...(JSON.parse(await bodyOf(request)) as object), client_id: "client-1" });
      case "/authorize": {
        const code = randomUUID();
        asked.set(code, url.searchParams);
        const back = new URL(url.searchParams.get("redirect_uri") ?? "");
        back.searchParams.set("code", code);
        back.searchParams.set("state", url.searchParams.get("state") ?? "");
        response.writeHead(200, { "content-type": "text/html" });
        response.end(`<a href="${back.href.replaceAll("&", "&amp;")}">Sign in as ann</a>`);
        return;
      }
      case "/token":
        return token(response, new URLSearchParams(await bodyOf(request)));
      default:
        return json(response, 404, { error: "not_found" });
    }
  }

  function token(response: ServerResponse, form: URLSearchParams): void {
    const verifier = form.get("code_verifier") ?? "";
    const code = form.get("code") ?? "";
    const login = asked.get(code);
    const isGood = login?.get("code_challenge") === createHash("sha256").update(verifier).digest("base64url");
    asked.delete(code);
    const claims = { iss: issuer, aud: audience, sub: "ann", exp: Math.floor(Date.now() / 1000) + 86_400 };
    const idClaims = { ...claims, aud: login?.get("client_id"), nonce: login?.get("nonce"), roles: roles() };
    if (!isGood) json(response, 400, { error: "invalid_grant" });
    else
      json(response, 200, {
        access_token: signToken({ key, claims }),
        id_token: signToken({ key, claims: idClaims }),
        token_type: "Bearer",
        expires_in: 300,
      });
  }

  return {
    issuer,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
