/**
 * Both versions of the official MCP client, each with a store for login state, so that tests can log in, refresh and
 * inspect the tokens.
 */
import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from "@modelcontextprotocol/client";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { openBrowser, type User } from "./browser.ts";

export const REDIRECT_URI = "http://127.0.0.1:33418/callback";

/** What both clients have of an answered tool call. */
interface ToolResult {
  readonly content?: unknown;
}

export interface LoggedIn {
  readonly client: {
    listTools(): Promise<{ tools: { name: string }[] }>;
    callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<ToolResult>;
    getServerVersion(): { name: string } | undefined;
    close(): Promise<void>;
  };
  readonly store: ClientStore;
  /** The callback's parameters. */
  readonly callback: URLSearchParams;
}

export interface ClientStore {
  client: { client_id: string; client_secret?: string } | undefined;
  tokens: { access_token: string; refresh_token?: string; token_type: string } | undefined;
  authorizationUrl: URL | undefined;
}

export type Generation = "1.x" | "2.x";

export async function logIn(
  generation: Generation,
  url: string,
  options: { user?: User; scope?: string } = {},
): Promise<LoggedIn> {
  const store: ClientStore = { client: undefined, tokens: undefined, authorizationUrl: undefined };
  const authProvider = createAuthProvider(store, options.scope);
  const { connect, finish } =
    generation === "1.x" ? firstGeneration(url, authProvider) : secondGeneration(url, authProvider);
  await connect().then(
    () => {
      throw new Error("a protected route let a client in without a token");
    },
    (error: unknown) => {
      // Anything but the redirect to the login is the failure that a test wants to see.
      if (!store.authorizationUrl) throw error;
    },
  );
  const authorizationUrl = store.authorizationUrl as URL | undefined;
  if (!authorizationUrl) throw new Error("the client was not sent to log in");
  const { searchParams } = await openBrowser(options.user).visit(authorizationUrl, REDIRECT_URI);
  const error = searchParams.get("error");
  if (error !== null) throw new Error(`the login failed: ${error} ${searchParams.get("error_description")}`);
  await finish(searchParams);
  return { client: await connect(), store, callback: searchParams };
}

type AuthProvider = ReturnType<typeof createAuthProvider>;
type Steps = { connect(): Promise<LoggedIn["client"]>; finish(callback: URLSearchParams): Promise<void> };

function firstGeneration(url: string, authProvider: AuthProvider): Steps {
  let transport: Transport1;
  return {
    async connect() {
      transport = new Transport1(new URL(url), { authProvider });
      const client = new Client1({ name: "test", version: "1" });
      await client.connect(transport as Parameters<typeof client.connect>[0]);
      return client as unknown as LoggedIn["client"];
    },
    finish: (callback) => transport.finishAuth(callback.get("code") ?? ""),
  };
}

function secondGeneration(url: string, authProvider: AuthProvider): Steps {
  let transport: Transport2;
  return {
    async connect() {
      transport = new Transport2(new URL(url), { authProvider });
      const client = new Client2({ name: "test", version: "1" });
      await client.connect(transport);
      return client as unknown as LoggedIn["client"];
    },
    finish: (callback) => transport.finishAuth(callback),
  };
}

function createAuthProvider(store: ClientStore, scope: string | undefined) {
  let verifier = "";
  let discovery: unknown;
  return {
    redirectUrl: REDIRECT_URI,
    clientMetadata: {
      client_name: "test client",
      redirect_uris: [REDIRECT_URI],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
      ...(scope === undefined ? {} : { scope }),
    },
    state: () => "state-of-the-test",
    clientInformation: () => store.client,
    saveClientInformation(client: { client_id: string }) {
      store.client = client;
    },
    tokens: () => store.tokens,
    saveTokens(tokens: { access_token: string; token_type: string }) {
      store.tokens = tokens;
    },
    redirectToAuthorization(url: URL) {
      store.authorizationUrl = url;
    },
    saveCodeVerifier(text: string) {
      verifier = text;
    },
    codeVerifier: () => verifier,
    // The second generation binds a login to the issuer that it began with.
    saveDiscoveryState(state: unknown) {
      discovery = state;
    },
    discoveryState: () => discovery as undefined,
  };
}
