/**
 * Every place in which an MCP server can name another authorization server, at every moment of a login, for every kind
 * of client: old codes, verifiers, refresh tokens, and client secrets reach only the server that they belong to.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import type { Fetch } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import type { Store } from "../../store/store.ts";
import type { OauthConfig } from "../server-side/target-config.ts";
import { LoginRegistry, ServerLogin } from "./server-login.ts";
import { Vault } from "./vault.ts";

const MCP = "https://mcp.example";
const FIRST = "https://first.example";
const SECOND = "https://second.example";
const TEN_MINUTES_MS = 601_000;
const CONFIGURED_SECRET = "configured-secret";

type Document = Record<string, unknown>;

/** What the servers publish. Each host answers every path below it. */
interface World {
  resource: Document;
  readonly servers: Map<string, Document>;
  challenge: string | undefined;
  /** Answers of the first server's endpoints, by path. */
  readonly redirects: Map<string, number>;
  readonly sent: { readonly origin: string; readonly path: string; readonly text: string }[];
}

function metadata(issuer: string, endpoints = issuer): Document {
  return {
    issuer,
    authorization_endpoint: `${endpoints}/authorize`,
    token_endpoint: `${endpoints}/token`,
    registration_endpoint: `${endpoints}/register`,
    revocation_endpoint: `${endpoints}/revoke`,
  };
}

/** The MCP server names the first server, or is the issuer itself and names the first server's endpoints. */
const SETUPS: Readonly<Record<string, () => World>> = {
  "another issuer": () => world([FIRST]),
  "its own metadata": () => {
    const all = world([MCP]);
    all.servers.set(MCP, metadata(MCP, FIRST));
    return all;
  },
};

function world(issuers: readonly string[]): World {
  return {
    resource: { resource: `${MCP}/mcp`, authorization_servers: issuers },
    servers: new Map([FIRST, SECOND].map((issuer) => [issuer, metadata(issuer)])),
    challenge: undefined,
    redirects: new Map(),
    sent: [],
  };
}

function fetchOf(all: World): Fetch {
  let n = 0;
  const reply = (status: number, value: object, headers: Record<string, string> = {}) => ({
    status,
    headers: HeaderList.of(headers),
    body: Buffer.from(JSON.stringify(value)),
  });
  return async ({ url, body, headers }) => {
    const { origin, pathname } = new URL(url);
    const authorization = Buffer.from((headers?.authorization ?? "").replace("Basic ", ""), "base64").toString();
    all.sent.push({
      origin,
      path: pathname,
      text: `${decodeURIComponent(body?.toString() ?? "")} ${decodeURIComponent(authorization)}`,
    });
    if (url === `${MCP}/mcp`)
      return reply(401, {}, all.challenge ? { "www-authenticate": `Bearer resource_metadata="${all.challenge}"` } : {});
    if (pathname.startsWith("/.well-known/oauth-protected-resource")) return reply(200, all.resource);
    if (pathname.startsWith("/.well-known/")) {
      const known = all.servers.get(origin);
      return known === undefined ? reply(404, {}) : reply(200, known);
    }
    const redirect = all.redirects.get(pathname);
    if (origin === FIRST && redirect !== undefined) return reply(redirect, {}, { location: `${SECOND}${pathname}` });
    n += 1;
    const name = pathname.startsWith("/tenants/") ? "evil" : new URL(origin).host;
    if (pathname === "/register")
      return reply(201, { client_id: `id-${name}`, client_secret: `registered-${name}-${n}` });
    if (pathname === "/revoke") return reply(200, {});
    return reply(200, { access_token: `at-${name}-${n}`, refresh_token: `rt-${name}-${n}`, expires_in: 600 });
  };
}

/** The MCP server is its own issuer, with the first server's endpoints except for these. */
const withEndpoints = (endpoints: Document) => (all: World) => {
  all.resource.authorization_servers = [MCP];
  all.servers.set(MCP, { ...metadata(MCP, FIRST), ...endpoints });
};
const MUTATIONS: Readonly<Record<string, (all: World) => void>> = {
  authorization_servers: (all) => {
    all.resource.authorization_servers = [SECOND];
  },
  "a second entry of authorization_servers": (all) => {
    all.resource.authorization_servers = [FIRST, SECOND];
  },
  "authorization_servers with a path": (all) => {
    all.resource.authorization_servers = [`${SECOND}/realms/a`];
    all.servers.set(SECOND, metadata(`${SECOND}/realms/a`, SECOND));
  },
  "authorization_servers with credentials": (all) => {
    all.resource.authorization_servers = ["https://first.example@second.example"];
  },
  "no authorization_servers": (all) => {
    all.resource = { resource: `${MCP}/mcp` };
    all.servers.set(MCP, metadata(MCP, SECOND));
  },
  itself: (all) => {
    all.resource.authorization_servers = [MCP];
    all.servers.set(MCP, metadata(MCP));
  },
  "itself with the other server's endpoints": (all) => {
    all.resource.authorization_servers = [MCP];
    all.servers.set(MCP, metadata(MCP, SECOND));
  },
  "the first issuer in the other server's metadata": (all) => {
    all.resource.authorization_servers = [SECOND];
    all.servers.set(SECOND, metadata(FIRST, SECOND));
  },
  "the other issuer in the first server's metadata": (all) => {
    all.servers.set(FIRST, metadata(SECOND));
  },
  "metadata without an issuer": (all) => {
    all.resource.authorization_servers = [SECOND];
    all.servers.set(SECOND, { ...metadata(SECOND), issuer: undefined });
  },
  "resource_metadata on another origin": (all) => {
    all.challenge = `${SECOND}/.well-known/oauth-protected-resource`;
  },
  "another resource": (all) => {
    all.resource.resource = `${SECOND}/mcp`;
    all.resource.authorization_servers = [SECOND];
  },
  "the resource of the other server only": (all) => {
    all.resource.resource = `${SECOND}/mcp`;
  },
  "the token endpoint": withEndpoints({ token_endpoint: `${SECOND}/token` }),
  "another path of the token endpoint": withEndpoints({ token_endpoint: `${FIRST}/tenants/evil/token` }),
  "the authorization endpoint": withEndpoints({ authorization_endpoint: `${SECOND}/authorization` }),
  "the revocation endpoint": withEndpoints({ revocation_endpoint: `${SECOND}/revocation` }),
  "the registration endpoint": withEndpoints({ registration_endpoint: `${SECOND}/registration` }),
  "an endpoint with another port": withEndpoints({ token_endpoint: `${FIRST}:8443/token` }),
  "an http endpoint": withEndpoints({ token_endpoint: "http://first.example/token" }),
  "no metadata at all": (all) => {
    all.servers.clear();
  },
  ...Object.fromEntries(
    [301, 302, 303, 307, 308].map((status) => [
      `redirects with ${status}`,
      (all: World) => {
        for (const path of ["/token", "/revoke", "/register"]) all.redirects.set(path, status);
      },
    ]),
  ),
};

const CLIENTS: Readonly<Record<string, Partial<OauthConfig>>> = {
  "a registered client": {},
  "a configured client": { clientId: "gateway" },
  "a client with a secret": { clientId: "gateway", clientSecret: CONFIGURED_SECRET },
};

const MOMENTS = ["during the login", "while metadata is cached", "after 10 minutes", "after a restart"] as const;

function memory(): Store {
  const records = new Map<string, string>();
  return {
    get: async (key: string) => records.get(key),
    set: async (key: string, value: string) => void records.set(key, value),
    delete: async (key: string) => records.delete(key),
    replace: async (key: string, expected: string | undefined, value: string) => {
      if (records.get(key) !== expected) return false;
      records.set(key, value);
      return true;
    },
  } as never;
}

class Attempt {
  readonly all: World;
  nowMs = 1_800_000_000_000;
  readonly secrets = new Set<string>();
  readonly #config: OauthConfig;
  readonly #vault: Vault;
  login: ServerLogin;

  constructor(all: World, config: Partial<OauthConfig>) {
    this.all = all;
    this.#config = { connectUrl: "https://gw.example/connect", ...config };
    this.#vault = new Vault(memory(), "a key of at least thirty-two characters");
    this.login = this.start();
  }

  start(): ServerLogin {
    const clock = { ...systemClock, now: () => this.nowMs };
    const logger = { info: () => undefined } as never;
    const env = { clock, fetch: fetchOf(this.all), logger, vault: this.#vault };
    this.login = new ServerLogin("route/mcp", "mcp", `${MCP}/mcp`, this.#config, env);
    return this.login;
  }

  /** Resolves with a function that returns to the gateway with a code of the server that the user was sent to. */
  async begin(user: string): Promise<(iss?: string) => Promise<void>> {
    const registry = new LoginRegistry();
    registry.add(this.login, this.#vault);
    const { url, state } = await this.login.begin({ principal: user, login: this.login.id }, "browser");
    const returned = await registry.returned(state, () => ["browser"]);
    assert.ok(returned !== undefined && returned !== "other browser");
    const { flow } = returned;
    const server = new URL(url).hostname;
    const code = `code-${server}-${user}-${this.secrets.size}`;
    // Nothing of a login at the first server is for another one, or for another tenant of its origin.
    if (server === new URL(FIRST).hostname && flow.server?.tokenEndpoint === `${FIRST}/token`) {
      this.secrets.add(code);
      this.secrets.add(flow.verifier);
      if (flow.client.clientSecret?.startsWith("registered-first")) this.secrets.add(flow.client.clientSecret);
    }
    return (iss) => this.login.finish(flow, { code, issuer: iss });
  }

  async connect(user: string): Promise<void> {
    await (await this.begin(user))();
  }

  /** Fails if another server than the first received one of the secrets. */
  check(): void {
    for (const { origin, path, text } of this.all.sent) {
      if (origin === FIRST && !path.startsWith("/tenants/")) continue;
      for (const secret of [...this.secrets, "rt-first.example-", CONFIGURED_SECRET])
        assert.ok(!text.includes(secret), `${origin}${path} received ${secret}: ${text}`);
    }
  }
}

/** Each place is tried at two moments. `MIX_UP=all` tries all four. */
function momentsOf(place: number): readonly (typeof MOMENTS)[number][] {
  return process.env.MIX_UP === "all" ? MOMENTS : MOMENTS.filter((_moment, i) => i % 2 === place % 2);
}

let cases = 0;
for (const [setup, make] of Object.entries(SETUPS))
  for (const [client, config] of Object.entries(CLIENTS))
    for (const isConfigured of setup === "another issuer" ? [false, true] : [false])
      test(`${setup}, ${client}${isConfigured ? ", a configured issuer" : ""}: only the bound server gets secrets [D35]`, async () => {
        for (const [i, [place, mutate]] of Object.entries(MUTATIONS).entries())
          for (const moment of momentsOf(i)) {
            cases += 1;
            const all = make();
            const attempt = new Attempt(all, { ...config, ...(isConfigured ? { issuer: FIRST } : {}) });
            try {
              await attempt.connect("alice");
              await attempt.connect("bob");
              const finish = await attempt.begin("carol");
              all.sent.length = 0;
              mutate(all);
              if (moment === "after a restart") attempt.start();
              if (moment === "after 10 minutes") attempt.nowMs += TEN_MINUTES_MS;
              // A response of the other server to a login at the first one is rejected.
              await assert.rejects(finish(SECOND), /another authorization server/);
              if (moment === "during the login") await finish().catch(() => undefined);
              attempt.nowMs += TEN_MINUTES_MS;
              await attempt.login.token("alice").catch(() => undefined);
              await attempt.login.revoke("bob").catch(() => undefined);
              // The users may connect again, at whatever server is named now.
              await attempt.connect("alice").catch(() => undefined);
              await attempt.connect("dave").catch(() => undefined);
              attempt.nowMs += TEN_MINUTES_MS;
              await attempt.login.token("alice").catch(() => undefined);
              await attempt.login.token("dave").catch(() => undefined);
              attempt.check();
            } catch (error) {
              throw new Error(`${place}, ${moment}`, { cause: error });
            }
          }
      });

test("the cases are several hundred, and an honest server renews and revokes", async () => {
  assert.equal(cases, 9 * Object.keys(MUTATIONS).length * momentsOf(0).length);
  for (const make of Object.values(SETUPS)) {
    const attempt = new Attempt(make(), { clientId: "gateway", clientSecret: CONFIGURED_SECRET });
    await attempt.connect("alice");
    attempt.start();
    attempt.nowMs += TEN_MINUTES_MS;
    assert.match((await attempt.login.token("alice")) ?? "", /^at-first.example-/);
    assert.equal(await attempt.login.revoke("alice"), true);
    const received = attempt.all.sent.filter(({ origin }) => origin === FIRST).map(({ text }) => text);
    for (const secret of ["code-first.example-alice-0", "rt-first.example-", CONFIGURED_SECRET])
      assert.ok(
        received.some((text) => text.includes(secret)),
        secret,
      );
    attempt.check();
  }
});
