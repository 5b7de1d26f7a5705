/**
 * The configuration under test: one route for each kind of traffic. `note` is a comment, so that two texts differ.
 */
import { fileURLToPath } from "node:url";

const STDIO_SERVER = fileURLToPath(new URL("./stdio-server.mjs", import.meta.url));
/** Requests a second on the limited route, and above it for those who were quiet. */
export const LIMIT = { requests: 20, burst: 10 };
/** How long MCP sessions may be idle. */
export const IDLE_SECONDS = 5;
export const ISSUER = "http://issuer.chaos.test";

export function configText({ ports, links, webHost, mark, historyFolder, note = "" }) {
  return `# ${note}
config:
  adminAddr: 127.0.0.1:${ports.admin}
  allowConfigEdit: true
  logging: { level: "info,access=off" }${historyFolder === undefined ? "" : `\n  history: { folder: "${historyFolder}" }`}
gateways:
  default: { port: ${ports.gateway}, address: 127.0.0.1 }
routes:
  - name: web
    matches: [{ path: { pathPrefix: /web } }]
    policies: { timeout: { requestTimeout: 8s } }
    backends: [{ host: "${webHost}:${links.web}" }]
  - name: stdio
    matches: [{ path: { exact: /mcp-stdio } }]
    backends:
      - mcp:
          sessionIdleTtl: ${IDLE_SECONDS}s
          requestTimeout: 8s
          maxChildren: 24
          targets: [{ name: echo, stdio: { cmd: "${process.execPath}", args: ["${STDIO_SERVER}", "${mark}"] } }]
  - name: remote
    matches: [{ path: { exact: /mcp-http } }]
    backends:
      - mcp:
          sessionIdleTtl: ${IDLE_SECONDS}s
          requestTimeout: 8s
          targets: [{ name: echo, mcp: { url: "http://127.0.0.1:${links.mcp}/mcp" } }]
  - name: llm
    matches: [{ path: { pathPrefix: /llm } }]
    policies: { timeout: { requestTimeout: 8s } }
    backends:
      - ai:
          groups:
            - providers: [{ name: first, provider: { openAICompatible: { baseUrl: "http://127.0.0.1:${links.llm}/v1" } }, auth: { key: a } }]
            - providers: [{ name: second, provider: { openAICompatible: { baseUrl: "http://127.0.0.1:${ports.llm2}/v1" } }, auth: { key: b } }]
  - name: tokens
    matches: [{ path: { exact: /jwt } }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [chaos], jwks: { url: "http://127.0.0.1:${ports.keys}/keys" } }
      transformations: { response: { set: { x-sub: jwt.sub } } }
      directResponse: { body: "in" }
  - name: limited
    matches: [{ path: { exact: /limited } }]
    policies:
      rateLimit: { local: [{ requests: ${LIMIT.requests}, unit: Seconds, burst: ${LIMIT.burst} }] }
      directResponse: { body: "in" }
`;
}
