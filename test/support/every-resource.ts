/**
 * Configurations whose routes have every kind of resource that survives a reload. Each route changes once in `SPREAD`
 * versions, so that resources of many configurations are in use at the same time.
 */

export const SPREAD = 5;

type Part = (version: number) => Readonly<Record<string, unknown>>;

const host = (version: number): object[] => [{ host: `127.0.0.1:${1000 + version}` }];
const at = (version: number): string => `http://127.0.0.1:${1000 + version}`;

const PARTS: Readonly<Record<string, Part>> = {
  host: (v) => ({ backends: host(v) }),
  "local limit": (v) => ({
    backends: host(1),
    policies: { rateLimit: { local: [{ requests: 5 + v, unit: "Minutes" }] } },
  }),
  "limit service": (v) => ({
    backends: host(1),
    policies: {
      rateLimit: {
        global: {
          host: `127.0.0.1:${1000 + v}`,
          domain: "gateway",
          descriptors: [{ entries: [{ key: "a", value: '"b"' }] }],
        },
      },
    },
  }),
  "authorization service": (v) => ({ backends: host(1), policies: { extAuthz: { host: `127.0.0.1:${1000 + v}` } } }),
  "external processor": (v) => ({ backends: host(1), policies: { extProc: { host: `127.0.0.1:${1000 + v}` } } }),
  mirror: (v) => ({ backends: host(1), policies: { requestMirror: [{ host: `127.0.0.1:${1000 + v}` }] } }),
  tokens: (v) => ({
    backends: host(1),
    policies: {
      jwtAuth: { issuer: at(v), audiences: ["a"], jwks: { url: `${at(v)}/keys` } },
      authorization: { rules: [`jwt.sub == "${v}"`] },
    },
  }),
  "browser login": (v) => ({
    backends: host(1),
    policies: { oidc: { issuer: at(v), clientId: "c", clientSecret: "secret", redirectUri: `${at(v)}/callback` } },
  }),
  "MCP login": (v) => ({
    backends: [{ mcp: { targets: [{ name: "t", mcp: { url: `${at(v)}/mcp` } }] } }],
    policies: {
      mcpAuthentication: {
        issuer: at(v),
        audiences: ["a"],
        provider: { idp_realm: {} },
        resourceMetadata: { resource: `${at(v)}/mcp` },
      },
    },
  }),
  "API keys": (v) => ({ backends: host(1), policies: { apiKey: { keys: [{ key: `a-key-of-a-client-${v}` }] } } }),
  passwords: (v) => ({
    backends: host(1),
    policies: { basicAuth: { htpasswd: `u${v}:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=` } },
  }),
  "token exchange": (v) => ({
    backends: host(1),
    policies: {
      backendAuth: { oauth: { tokenUrl: `${at(v)}/token`, clientId: "c", clientSecret: "secret", audiences: ["a"] } },
    },
  }),
  budget: (v) => ({
    backends: [{ ai: { name: "demo", provider: { demo: {} } } }],
    policies: { budgets: { limits: [{ name: `b${v}`, tokens: 100, per: "day" }] } },
  }),
  "failing over models": (v) => ({
    backends: [{ ai: { models: [{ name: `m${v}`, provider: "openAI", params: { baseUrl: at(v), apiKey: "k" } }] } }],
  }),
  MCP: (v) => ({ backends: [{ mcp: { targets: [{ name: "t", mcp: { url: `${at(v)}/mcp` } }] } }] }),
  "MCP process": (v) => ({ backends: [{ mcp: { targets: [{ name: "t", stdio: { cmd: "true", args: [`${v}`] } }] } }] }),
  A2A: (v) => ({ backends: [{ a2a: { url: at(v) } }] }),
  service: (v) => ({ backends: [{ service: { name: "s", endpoints: [`127.0.0.1:${1000 + v}`] } }] }),
  dynamic: (v) => ({ backends: [{ dynamic: { ports: [1000 + v] } }] }),
  canary: (v) => ({
    backends: [...host(1), { host: `127.0.0.1:${1000 + v}`, canary: { share: 5, maxErrors: 2 } }],
  }),
  text: (v) => ({ policies: { directResponse: { body: `version ${v}` } } }),
};

export function everyResource(version: number, more: object = {}): string {
  const routes = Object.values(PARTS).map((part, i) => ({
    name: `r${i}`,
    matches: [{ path: { pathPrefix: `/r${i}` } }],
    ...part(Math.floor((version + i) / SPREAD)),
  }));
  return JSON.stringify({
    gateways: { default: { port: 0, address: "127.0.0.1", forwardProxy: true } },
    routes,
    ...more,
  });
}
