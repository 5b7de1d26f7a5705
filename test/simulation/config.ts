/**
 * The configuration and the addresses of a simulation.
 */
import { MOST_SESSIONS } from "./flood-client.ts";
import { AUDIENCE, ISSUER } from "./identity-provider.ts";
import { LIMIT, LIMIT_KEY, LIMITED_HOST } from "./limit-client.ts";
import { SECRET_PATTERN } from "./llm-provider.ts";
import { TOKEN_HOST } from "./token-client.ts";

export const CONFIG_FILE = "/gateway/config.yaml";
export const PORT = 8080;
export const REDIS_PORT = 6379;
export const POSTGRES_PORT = 5432;
/** Each replica has a folder below, for rows of the request history that wait for the database. */
export const HISTORY_FOLDER = "/gateway/history";
export const DRAIN_MS = 10_000;
/** The program of the MCP server that the gateway runs as a child process. */
export const STDIO_SERVER = "stdio-server";
/** The tokens that a user of the LLM may spend in a day. */
export const LLM_BUDGET = 8_000;

/** The servers of the gateway by name. */
export const ADDRESSES = {
  "one.test": "10.0.1.1",
  "two.test": "10.0.1.2",
  "tools.test": "10.0.2.1",
  "modern-tools.test": "10.0.2.2",
  "llm-one.test": "10.0.3.1",
  "llm-two.test": "10.0.3.2",
  "redis.test": "10.0.4.1",
  "idp.test": "10.0.4.2",
  "postgres.test": "10.0.4.3",
};

/** The name of the Kubernetes controller's Service. */
export const CONTROLLER_NAME = "controller.test";
export const CONTROLLER_PORT = 9443;
export const TOKEN_FILE = "/plane/token";
/** A certificate of the controller for that name, until 2035. Connections are not encrypted. */
export const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBhjCCASygAwIBAgIQR7ejfx0UhanM6Dq3G2RQ5DAKBggqhkjOPQQDAjAaMRgw
FgYDVQQDDA9jb250cm9sbGVyLnRlc3QwHhcNMjYwMTAxMTEwMDAwWhcNMzUxMjMw
MTIwMDAwWjAaMRgwFgYDVQQDDA9jb250cm9sbGVyLnRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAASDYgmt4Ns7LRQ+EELElMJyZuCYYUxwGgQ+NV62l2jsYd9t
2KBsABx6bUVSA5MzoF0HbXLpjWIKFRbNRC78VWX0o1QwUjAPBgNVHRMBAf8EBTAD
AQH/MA4GA1UdDwEB/wQEAwIChDATBgNVHSUEDDAKBggrBgEFBQcDATAaBgNVHREE
EzARgg9jb250cm9sbGVyLnRlc3QwCgYIKoZIzj0EAwIDSAAwRQIhAMkInLx4oMNJ
GDLW+ovcU5I6waAnNBobPW3ImwJvmKOWAiBkdmarm4cCBTSQhwkMCgXYyG9z9wJ6
qJktAPJFPRW/OQ==
-----END CERTIFICATE-----
`;

const NETWORKS: Readonly<Record<string, number>> = { gateway: 0, thread: 0, controller: 5, plane: 6, pod: 7 };

/** The address of a simulated process, for example of `gateway 0.1`. */
export function addressOf(process: string): string {
  const [, kind = "", number] = /^(\w+) (\d+)/.exec(process) ?? [];
  return `10.0.${NETWORKS[kind]}.${1 + Number(number)}`;
}

export function pidOf(process: string): number {
  return Number(/\.(\d+)$/.exec(process)?.[1] ?? 0);
}

export type StoreKind = "memory" | "folder" | "redis";

export const STORE_FOLDER = "/gateway/state";

const STORES: Readonly<Record<StoreKind, string>> = {
  memory: "memory",
  folder: `{ folder: ${STORE_FOLDER} }`,
  redis: `{ redis: "redis://redis.test:${REDIS_PORT}" }`,
};

/** The replica's number comes from its environment. */
const HISTORY = `history: { postgres: "postgres://gateway@postgres.test:${POSTGRES_PORT}/gateway", folder: "${HISTORY_FOLDER}/\${REPLICA}" }`;

/** Each version of the configuration changes the routes of all kinds of backends. */
export function configOf(version: number, store: StoreKind, hasHistory: boolean, workers: number): string {
  const changed = `responseHeaderModifier: { set: { x-version: "${version}" } }`;
  return `
config:
  drainTimeout: ${DRAIN_MS / 1000}s
  adminAddr: "off"
  workers: ${workers}
  logging: { format: json }
  store: ${STORES[store]}
  ${hasHistory ? HISTORY : ""}
gateways: { default: { port: ${PORT} } }
routes:
  - name: mcp
    matches: [{ path: { pathPrefix: /mcp } }]
    policies: { ${changed} }
    backends:
      - mcp:
          sessionIdleTtl: 15m
          maxSessionsPerClient: ${MOST_SESSIONS}
          targets: [{ name: tools, mcp: { url: "http://tools.test/mcp" } }]
  - name: modern
    matches: [{ path: { pathPrefix: /modern } }]
    policies: { ${changed} }
    backends:
      - mcp:
          sessionIdleTtl: 15m
          targets: [{ name: modern, mcp: { url: "http://modern-tools.test/mcp" } }]
  - name: stdio
    matches: [{ path: { pathPrefix: /stdio } }]
    policies: { ${changed} }
    backends:
      - mcp:
          sessionIdleTtl: 15m
          targets: [{ name: child, stdio: { cmd: ${STDIO_SERVER} } }]
  - name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      ${changed}
      ai: { promptGuard: { response: [{ regex: { action: mask, rules: [{ pattern: "${SECRET_PATTERN}" }] } }] } }
      budgets:
        limits: [{ name: user, tokens: ${LLM_BUDGET}, per: day, key: 'request.headers["x-user"]' }]
    backends:
      - ai:
          name: llm
          groups:
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://llm-one.test/v1" } }, timeouts: { firstByte: 20s, idle: 30s } }]
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://llm-two.test/v1" } }, timeouts: { firstByte: 20s, idle: 30s } }]
  - name: secure
    hostnames: [${TOKEN_HOST}]
    policies:
      jwtAuth: { issuer: ${ISSUER}, audiences: [${AUDIENCE}], jwks: { url: "http://idp.test/keys" } }
      ${changed}
    backends: [{ host: "one.test:80" }]
  - name: limited
    hostnames: [${LIMITED_HOST}]
    policies:
      rateLimit: { local: [{ requests: ${LIMIT}, unit: Hours, key: 'request.headers["${LIMIT_KEY}"]' }] }
      ${changed}
    backends: [{ host: "two.test:80" }]
  - name: http
    policies:
      timeout: { requestTimeout: 30s }
      ${version % 2 === 0 ? "" : "retry: { attempts: 2, backoff: 100ms, codes: [503] }"}
      ${changed}
    backends:
      - { host: "one.test:80", weight: ${1 + (version % 3)} }
      - { host: "two.test:80" }
`;
}
