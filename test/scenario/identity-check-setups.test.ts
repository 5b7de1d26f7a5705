/**
 * `gwctl auth check` is right about 24 setups of a login, good and broken, against real providers: what works gets no
 * complaint, what does not is named with how to fix it, and what cannot be known is not ticked.
 */

import assert from "node:assert/strict";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer } from "node:net";
import { after, before, test } from "node:test";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { Owner } from "../../src/base/owner.ts";
import { openFetcher } from "../../src/http/client/fetcher.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import { checkLogin } from "../../src/identity/login/login-check.ts";
import type { LoginLeg, LoginPolicy } from "../../src/identity/login/login-leg.ts";
import {
  type IdentityProviderStandIn,
  openRealm,
  openTenant,
  type RealmOptions,
  type TenantOptions,
  TRUSTED_HOSTS_REFUSAL,
} from "../support/identity/identity-provider.ts";
import { logIn } from "../support/identity/mcp-login.ts";
import { DEMO_TARGET, type ProtectedGateway, startProtectedGateway } from "../support/identity/protected-gateway.ts";
import { certificates } from "../support/tls/certificates.ts";

const REDIRECT_URI = "http://127.0.0.1:33418/callback";
const CLIENT_ID = "app-1";
/** Longer than a token of the stand-in is valid, leeway included. */
const LATE_MS = 4_000_000;

let good: IdentityProviderStandIn;
let gateway: ProtectedGateway;
let token: string;

before(async () => {
  good = await openRealm({ allowsExclusion: true, accessTokenSeconds: 3600 });
  gateway = await startProtectedGateway(
    (base) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      { issuer: "${good.issuer}", audiences: [gateway], provider: { idp_realm: {} }, resourceMetadata: { resource: "${base}/mcp" } }
`,
  );
  const session = await logIn("1.x", `${gateway.base}/mcp`, { scope: "openid offline_access tools" });
  token = session.store.tokens?.access_token ?? "";
  await session.client.close();
});

after(async () => {
  await gateway.close();
  await good.close();
});

interface Setup {
  readonly name: string;
  /** The provider: the one that works, another realm or tenant, or an issuer at which there is none. */
  readonly realm?: RealmOptions;
  readonly tenant?: Partial<TenantOptions>;
  readonly issuer?: (given: string) => string | Promise<string>;
  readonly policy?: Partial<LoginPolicy>;
  readonly metadata?: Partial<LoginPolicy["resourceMetadata"]>;
  readonly hasToken?: boolean;
  readonly hasCors?: boolean;
  readonly aheadMs?: number;
  /** The legs that fail, each with a part of how to fix it. */
  readonly fails: Readonly<Record<string, RegExp>>;
  /** Legs that must be neither well nor wrong. */
  readonly open?: readonly string[];
}

const SETUPS: readonly Setup[] = [
  { name: "the guide was followed", hasToken: true, fails: {} },
  { name: "a scope that carries no audience is announced", metadata: { scopesSupported: ["tools"] }, fails: {} },
  { name: "nobody gave a token, so the audience is not known", fails: {}, open: ["token"] },
  { name: "no cors policy", hasCors: false, fails: {}, open: ["cors"] },
  {
    name: "the realm is named directly and sends iss",
    realm: {},
    metadata: { authorizationServers: ["the realm"] },
    fails: {},
  },
  {
    name: "the realm's name is misspelt",
    issuer: (given) => `${given}x`,
    fails: { metadata: /realm's name/, keys: /./ },
  },
  {
    name: "the issuer is another name of the same host",
    issuer: (given) => given.replace("127.0.0.1", "localhost"),
    fails: { metadata: /the exact issuer of the provider/ },
  },
  {
    name: "the provider is not running",
    issuer: () => "http://127.0.0.1:1/realms/mcp",
    fails: { metadata: /can reach it/, keys: /./ },
  },
  {
    name: "trusted hosts are closed",
    realm: { refusal: TRUSTED_HOSTS_REFUSAL },
    fails: { registration: /Trusted Hosts/ },
  },
  { name: "the realm requires TLS", realm: { refusal: "HTTPS required" }, fails: { registration: /Require SSL/ } },
  {
    name: "the limit of registered clients is reached",
    realm: { refusal: "Policy 'Max Clients Limit' rejected request to client-registration service." },
    fails: { registration: /unused clients/ },
  },
  {
    name: "an announced scope is not known",
    realm: { allowsExclusion: true, refusesUnknownScopes: true },
    metadata: { scopesSupported: ["tools", "nope"] },
    fails: { authorize: /scopesSupported/ },
  },
  { name: "the realm keeps sending iss", realm: {}, fails: { authorize: /Exclude Issuer/ } },
  {
    name: "the token lacks the audience",
    policy: { audiences: ["another"] },
    hasToken: true,
    fails: { token: /audience mapper/ },
  },
  {
    name: "the token is from another realm",
    realm: { allowsExclusion: true },
    hasToken: true,
    fails: { token: /./ },
  },
  {
    name: "this host's clock is wrong, and the token seems expired",
    hasToken: true,
    aheadMs: LATE_MS,
    fails: { clock: /NTP/, token: /log in again/ },
  },
  {
    name: "resource is another address",
    metadata: { resource: "elsewhere" },
    fails: { resource: /the address that clients use/ },
  },
  {
    name: "jwks is a page without keys",
    policy: { jwks: "a page without keys" },
    fails: { keys: /jwks/ },
  },
  {
    name: "the provider has a certificate of an own authority",
    issuer: overTls,
    fails: { metadata: /NODE_EXTRA_CA_CERTS/, keys: /./ },
  },
  { name: "the provider does not speak TLS", issuer: withoutTls, fails: { metadata: /http:\/\//, keys: /./ } },
  { name: "a tenant is set up", tenant: {}, fails: {}, open: ["token"] },
  {
    name: "a tenant's issuer has a slash too many",
    tenant: {},
    issuer: (given) => `${given}/`,
    fails: { metadata: /exactly these slashes/ },
  },
  {
    name: "the app registration is confidential",
    tenant: { clientSecret: "a secret of the app registration" },
    fails: { "token endpoint": /clientSecret/ },
  },
  {
    name: "the client id is not of this tenant",
    tenant: { clientId: "app-2" },
    fails: { "token endpoint": /clientId/ },
  },
];

for (const setup of SETUPS) {
  test(`auth check: ${setup.name}`, async (t) => {
    const provider = await providerOf(setup);
    if (provider !== good) t.after(() => provider.close());
    const legs = await check(setup, provider.issuer);
    const shown = JSON.stringify([...legs.values()], undefined, 2);
    const failing = [...legs.values()].filter(({ ok }) => ok === false);
    assert.deepEqual(failing.map(({ leg }) => leg).sort(), Object.keys(setup.fails).sort(), shown);
    for (const { leg, hint } of failing) assert.match(hint ?? "", setup.fails[leg] ?? /(?!)/, shown);
    for (const leg of setup.open ?? []) assert.equal(legs.get(leg)?.ok, undefined, shown);
  });
}

function providerOf({ realm, tenant }: Setup): Promise<IdentityProviderStandIn> | IdentityProviderStandIn {
  if (tenant) return openTenant({ clientId: CLIENT_ID, redirectUri: REDIRECT_URI, ...tenant });
  return realm ? openRealm(realm) : good;
}

async function check(setup: Setup, given: string): Promise<ReadonlyMap<string, LoginLeg>> {
  const issuer = await (setup.issuer ?? ((same) => same))(given);
  const metadata = { ...setup.metadata };
  const resource = metadata.resource === undefined ? `${gateway.base}/mcp` : `${gateway.base}/${metadata.resource}/mcp`;
  if (metadata.authorizationServers) metadata.authorizationServers = [issuer];
  const policy: LoginPolicy = {
    issuer,
    audiences: [setup.tenant ? CLIENT_ID : "gateway"],
    provider: setup.tenant ? { idp_tenant: {} } : { idp_realm: {} },
    ...(setup.tenant ? { clientId: CLIENT_ID } : {}),
    ...setup.policy,
    ...(setup.policy?.jwks === undefined ? {} : { jwks: `${given}/.well-known/openid-configuration` }),
    resourceMetadata: { ...metadata, resource },
  };
  const clock: Clock = { ...systemClock, now: () => Date.now() + (setup.aheadMs ?? 0) };
  const fetcher = openFetcher(clock, EgressGuard.for("configuration"));
  const legs = new Map<string, LoginLeg>();
  const options = {
    policy,
    fetch: fetcher.of(Owner.standalone),
    clock,
    readFile: () => "",
    gateway: { hasCors: setup.hasCors ?? true },
    token: setup.hasToken ? token : undefined,
  };
  try {
    for await (const leg of checkLogin(options)) if (legs.get(leg.leg)?.ok !== false) legs.set(leg.leg, leg);
  } finally {
    fetcher.close();
  }
  return legs;
}

/** The issuer at a server whose certificate no system knows. */
async function overTls(): Promise<string> {
  const server = createTlsServer({ cert: certificates.server.cert, key: certificates.server.key }, (_, response) =>
    response.end("{}"),
  );
  return listening(server);
}

/** The issuer with https at a server that speaks none. */
async function withoutTls(): Promise<string> {
  return listening(
    createServer((socket) =>
      socket.on("error", () => undefined).on("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")),
    ),
  );
}

async function listening(server: ReturnType<typeof createServer>): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => server.close());
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}/realms/mcp`;
}
