/**
 * A configuration that contains a secret in every possible field: literal, from the environment, from files, and in
 * resources.
 */
import { createHash, randomBytes } from "node:crypto";
import { fixturePath } from "../mcp/fixture.ts";
import { certificates } from "../tls/certificates.ts";
import type { Planted } from "./planted.ts";

export const ISSUER = "http://localhost:8080/realms/mcp";
export const CLIENT_ID = "app-1";

export type Secrets = ReturnType<typeof plantConfigured>;

export function plantConfigured(planted: Planted) {
  const password = planted.plant("password of a user");
  const passwordHash = createHash("sha1").update(password).digest("base64");
  for (const [i, line] of certificates.server.key.split("\n").entries())
    if (line.length > 20 && !line.startsWith("-")) planted.add(`line ${i} of the TLS key`, line);
  return {
    apiKey: planted.plant("API key from the environment"),
    plainKey: planted.plant("API key as written"),
    teamKey: planted.plant("API key in a header of its own"),
    queryKey: planted.plant("API key in a parameter of its own"),
    password,
    passwordHash: planted.add("hash of a password", passwordHash),
    clientSecret: planted.plant("secret of the app registration"),
    backendKey: planted.plant("key for a backend"),
    headerKey: planted.plant("key for a backend in a header of its own"),
    keyFile: planted.plant("key for a backend from a file"),
    openAiKey: planted.plant("key for an LLM provider"),
    geminiKey: planted.plant("key for another LLM provider"),
    awsSecret: planted.plant("secret of an AWS key"),
    awsSession: planted.plant("session token of an AWS key"),
    childToken: planted.plant("variable of a child process"),
    remoteToken: planted.plant("header for a remote MCP server"),
    remoteQuery: planted.plant("parameter of a remote MCP server's URL"),
    setAuthorization: planted.plant("authorization that the gateway sets"),
    setInternal: planted.plant("sensitive header that the gateway sets"),
    setCookie: planted.plant("cookie that the gateway sets"),
    computed: planted.plant("header that an expression sets"),
    matched: planted.plant("sensitive header that a route matches"),
    policyKey: planted.plant("API key in a GatewayPolicy"),
    policyHeader: planted.plant("header in a GatewayPolicy"),
    misspelt: planted.plant("API key in a GatewayPolicy that is misspelt"),
    serviceKey: planted.plant("key in a service"),
    routeHeader: planted.plant("header in an HTTPRoute"),
    word: planted.add("secret that is a word", `k${randomBytes(12).toString("hex")}`),
    number: planted.add(
      "API key of digits",
      `81${Array.from(crypto.getRandomValues(new Uint8Array(14)), (one) => one % 10).join("")}`,
    ),
  };
}

/** Where the servers behind it are. */
export interface Addresses {
  readonly base: string;
  readonly host: string;
  readonly llm: string;
  readonly remote: string;
  readonly talkative: string;
  readonly realm: string;
  readonly tenant: string;
}

/** A child that cannot start, and says with which key. */
const TALKATIVE =
  "const key = process.env.UPSTREAM_TOKEN + '\\n'; process.stdout.write(key); process.stderr.write('refused: ' + key); process.exitCode = 1";

export function configuration(secrets: Secrets, at: Addresses): string {
  const route = (name: string, backends: string, policies = "{}", match = `path: { pathPrefix: /${name} }`): string =>
    `  - name: ${name}\n    matches: [{ ${match} }]\n    backends: [${backends}]\n    policies: ${policies}\n`;
  const host = `{ host: "${at.host}" }`;
  const node = JSON.stringify(process.execPath);
  const stdio = (args: readonly string[]): string =>
    `stdio: { cmd: ${node}, args: ${JSON.stringify(args)}, env: { UPSTREAM_TOKEN: "${secrets.childToken}" } }`;
  const policy = (name: string, traffic: string): string => `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: ${name} }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: ${name} }]
  traffic: ${traffic}
`;
  return `config:
  history: {}
  drainTimeout: 100ms
  sensitiveHeaders: [X-Internal-Token]
  logging: { level: trace }
  tracing: { keepFailed: {} }
gateways:
  default: { port: 0 }
  secure: { port: 0, protocol: HTTPS, tls: { cert: ./server.pem, key: ./server.key.pem } }
services:
  "shop:80": "${at.host}"
  "models:80": { ai: { provider: { openAI: {} }, hostOverride: "${at.llm}", auth: { key: ${secrets.serviceKey} } } }
routes:
${route("open", host)}
${route(
  "keys",
  host,
  `{ apiKey: { keys: [{ key: "\${API_KEY}", metadata: { user_id: alice } }, { key: ${secrets.plainKey} }] }, rateLimit: { local: [{ requests: 100, unit: Hours, key: 'request.headers["x-api-key"]' }] } }`,
)}
${route("team", host, `{ apiKey: { keys: [{ key: ${secrets.teamKey} }], location: { header: { name: X-Team-Key } } } }`)}
${route("query", host, `{ apiKey: { keys: [{ key: ${secrets.queryKey} }], location: { queryParameter: { name: team } } } }`)}
${route("basic", host, `{ basicAuth: { htpasswd: "bob:{SHA}${secrets.passwordHash}" } }`)}
${route(
  "jwt",
  host,
  `{ jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json }, authorization: { rules: ['jwt.sub == "alice"', 'request.headers["x-internal-token"].size() > 0'] } }`,
)}
${route(
  "added",
  host,
  `
      requestHeaderModifier: { set: { authorization: "Bearer ${secrets.setAuthorization}", x-internal-token: ${secrets.setInternal} } }
      transformations: { request: { set: { Cookie: "'jar=${secrets.setCookie}'", x-api-key: "'${secrets.computed}' + request.method" } } }
      responseHeaderModifier: { set: { x-internal-token: ${secrets.setInternal} } }`,
)}
${route("backend-key", `{ host: "${at.host}", policies: { backendAuth: { key: "\${BACKEND_KEY}" } } }`)}
${route("backend-header", `{ host: "${at.host}", policies: { backendAuth: { key: ${secrets.headerKey}, header: { name: x-upstream-key, prefix: "Key " } } } }`)}
${route("backend-file", host, "{ backendAuth: { key: { file: ./backend.key }, header: { name: x-file-key } } }")}
${route("passed-on", host, `{ apiKey: { keys: [{ key: ${secrets.teamKey} }], location: { header: { name: X-Team-Key } } }, backendAuth: { passthrough: {} } }`)}
${route("down", `{ host: "127.0.0.1:1", policies: { backendAuth: { key: "\${BACKEND_KEY}" } } }`)}
${route("defect", `${host}, ${host}`)}
${route("failing", host, `{ transformations: { request: { set: { x-copy: 'request.headers["x-internal-token"].split("")[99999]', x-number: 'int(request.headers["authorization"])' } } } }`)}
${route("denied", host, `{ authorization: { rules: ['int(request.headers["cookie"]) > 3', 'request.headers["x-internal-token"] == request.headers["authorization"]'] } }`)}
${route("matched", host, "{}", `path: { pathPrefix: /matched }, headers: [{ name: X-Internal-Token, exact: ${secrets.matched} }]`)}
${route("policied", host)}
${route("misspelt", host)}
${route("openai", `{ ai: { provider: { openAI: {} }, hostOverride: "${at.llm}", auth: { key: ${secrets.openAiKey} } } }`)}
${route("gemini", `{ ai: { groups: [{ providers: [{ name: gem, provider: { gemini: {} }, hostOverride: "${at.llm}", auth: { key: ${secrets.geminiKey} } }] }] } }`)}
${route(
  "bedrock",
  `{ ai: { models: [{ name: "*", provider: bedrock, params: { hostOverride: "${at.llm}", awsRegion: us-east-1, awsAccessKeyId: AKIDEXAMPLE, awsSecretAccessKey: ${secrets.awsSecret}, awsSessionToken: ${secrets.awsSession} } }] } }`,
)}
${route(
  "tools",
  `{ mcp: { targets: [{ name: child, ${stdio([fixturePath("odd-server")])} }, { name: remote, mcp: { url: "${at.remote}?api_key=${secrets.remoteQuery}", headers: { x-remote-token: ${secrets.remoteToken} } } }] } }`,
)}
${route("talkative", `{ mcp: { targets: [{ name: talkative, ${stdio(["-e", TALKATIVE])} }] } }`)}
${route(
  "talkative-remote",
  `{ mcp: { targets: [{ name: far, mcp: { url: "${at.talkative}?api_key=${secrets.remoteQuery}", headers: { x-remote-token: ${secrets.remoteToken} } } }] } }`,
)}
${route(
  "realm",
  `{ mcp: { targets: [{ name: child, ${stdio([fixturePath("odd-server")])} }] } }`,
  `
      mcpAuthentication:
        issuer: ${at.realm}
        audiences: [gateway]
        provider: { idp_realm: {} }
        resourceMetadata: { resource: ${at.base}/realm }`,
)}
${route(
  "mcp",
  `{ mcp: { targets: [{ name: child, ${stdio([fixturePath("odd-server")])} }] } }`,
  `
      mcpAuthentication:
        issuer: ${at.tenant}
        audiences: [${CLIENT_ID}]
        provider: { idp_tenant: {} }
        clientId: ${CLIENT_ID}
        clientSecret: "\${CLIENT_SECRET}"
        resourceMetadata: { resource: ${at.base}/mcp, scopesSupported: [openid, tools] }`,
)}
${policy(
  "policied",
  `{ apiKeyAuthentication: { keys: [{ key: ${secrets.policyKey} }] }, headerModifiers: { request: { set: { x-internal-token: ${secrets.policyHeader} } } } }`,
)}${policy("misspelt", `{ apiKeyAuthentication: { keyz: [{ key: ${secrets.misspelt} }], keys: [] }, apiKeyAutentication: { keys: [{ key: ${secrets.misspelt} }] } }`)}---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: shop }
spec:
  parentRefs: [{ name: default }]
  rules:
    - matches: [{ path: { type: PathPrefix, value: /shop } }]
      filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: Authorization, value: "Bearer ${secrets.routeHeader}" }] } }]
      backendRefs: [{ name: shop, port: 80 }]
`;
}
