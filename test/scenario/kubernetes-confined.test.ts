/**
 * Every address that a GatewayPolicy or a Backend can name, pointed at this machine. In files each is asked, which shows
 * that the row works; the same documents from a cluster send nothing there, even if the operator allows the network.
 */
import assert from "node:assert/strict";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { stringify } from "yaml";
import { startApp } from "../../src/app/app.ts";
import type { App } from "../../src/app/app-options.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { restrictNetworks } from "../../src/http/local-address.ts";
import { createSnapshotSource } from "../../src/kubernetes/follow-controller.ts";
import { eventually } from "../support/scenario.ts";

interface Row {
  /** `traffic` or `backend` of a GatewayPolicy. */
  readonly policy?: object;
  /** The spec of the Backend; without it, the demo model. */
  readonly backend?: object;
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
  /** Asked as a browser opens a page. */
  readonly isPage?: boolean;
}

const demo = { ai: { provider: { demo: {} } } };
const chat = { model: "m", messages: [{ role: "user", content: "hello" }] };
const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};
/** Unsigned, but well formed: keys are looked for. */
const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
const token = (issuer: string): string =>
  `Bearer ${part({ alg: "RS256", kid: "1" })}.${part({ iss: issuer, aud: "a", sub: "u", exp: 4_000_000_000 })}.AAAA`;

const KEY = { key: "k" };
const guardedBy = (guard: object): Row => ({
  policy: { traffic: { ai: { promptGuard: { request: [guard] } } } },
  body: chat,
});

/** Each gets a port of this machine to name. */
const ROWS: Readonly<Record<string, (port: number) => Row>> = {
  "jwt-keys": (port) => ({
    policy: {
      traffic: {
        jwtAuthentication: {
          issuer: "https://a.test",
          audiences: ["a"],
          jwks: { url: `http://127.0.0.1:${port}/keys` },
        },
      },
    },
    headers: { authorization: token("https://a.test") },
  }),
  "jwt-issuer": (port) => ({
    policy: { traffic: { jwtAuthentication: { issuer: `http://127.0.0.1:${port}`, audiences: ["a"] } } },
    headers: { authorization: token(`http://127.0.0.1:${port}`) },
  }),
  "mcp-keys": (port) => ({
    policy: {
      backend: {
        mcp: {
          authentication: {
            issuer: "https://a.test",
            audiences: ["a"],
            jwks: { url: `http://127.0.0.1:${port}/keys` },
            resourceMetadata: { resource: "https://mcp.test/mcp" },
          },
        },
      },
    },
    backend: { mcp: { targets: [{ name: "a", mcp: { url: "http://mcp.invalid/mcp" } }] } },
    body: initialize,
    headers: { authorization: token("https://a.test") },
  }),
  "browser-login": (port) => ({
    policy: {
      traffic: {
        oidc: { issuer: `http://127.0.0.1:${port}`, clientId: "a", redirectUri: "http://127.0.0.1/browser-login/back" },
      },
    },
    isPage: true,
  }),
  "ext-authz-url": (port) => ({
    policy: { traffic: { extAuthz: { url: `http://127.0.0.1:${port}/`, timeout: "30s" } } },
  }),
  "backend-oauth": (port) => ({
    policy: { traffic: { backendAuth: { oauth: { tokenUrl: `http://127.0.0.1:${port}/` } } } },
    headers: { authorization: "Bearer a" },
  }),
  "backend-cross-app": (port) => ({
    policy: {
      traffic: {
        backendAuth: {
          crossAppAccess: {
            identityProvider: { tokenUrl: `http://127.0.0.1:${port}/` },
            resourceServer: { tokenUrl: "http://a.test/" },
            audience: "a",
          },
        },
      },
    },
    headers: { authorization: "Bearer a" },
  }),
  "guard-moderation": (port) => guardedBy({ openAIModeration: { auth: KEY, baseUrl: `http://127.0.0.1:${port}` } }),
  "guard-azure": (port) =>
    guardedBy({ azureContentSafety: { endpoint: `http://127.0.0.1:${port}`, analyzeText: {}, auth: KEY } }),
  "guard-armor": (port) =>
    guardedBy({
      googleModelArmor: { templateId: "t", projectId: "p", auth: KEY, baseUrl: `http://127.0.0.1:${port}` },
    }),
  "guard-bedrock": (port) =>
    guardedBy({
      bedrockGuardrails: {
        guardrailIdentifier: "g",
        guardrailVersion: "1",
        region: "us-west-2",
        auth: KEY,
        baseUrl: `http://127.0.0.1:${port}`,
      },
    }),
  "ext-authz-path": (port) => ({
    policy: { traffic: { extAuthz: { url: `http://127.0.0.1:${port}/`, path: "request.path", timeout: "30s" } } },
  }),
  "ext-authz-host": (port) => ({ policy: { traffic: { extAuthz: { host: `127.0.0.1:${port}`, timeout: "30s" } } } }),
  "ext-proc-host": (port) => ({ policy: { traffic: { extProc: { host: `127.0.0.1:${port}`, timeout: "30s" } } } }),
  "mcp-guardrails-host": (port) => ({
    policy: {
      backend: {
        mcp: {
          guardrails: { processors: [{ host: `127.0.0.1:${port}`, timeout: "30s", methods: { initialize: "full" } }] },
        },
      },
    },
    backend: { mcp: { targets: [{ name: "a", mcp: { url: "http://mcp.invalid/mcp" } }] } },
    body: initialize,
  }),
  "ext-authz-address": (port) => ({ policy: { traffic: { extAuthz: { host: `127.0.0.1:${port}`, timeout: "30s" } } } }),
  "rate-limit": (port) => ({ policy: { traffic: { rateLimit: globalLimit(`127.0.0.1:${port}`) } } }),
  "rate-limit-address": (port) => ({ policy: { traffic: { rateLimit: globalLimit(`127.0.0.1:${port}`) } } }),
  "guard-request": (port) => ({
    policy: { traffic: { ai: { promptGuard: { request: [{ webhook: { url: `http://127.0.0.1:${port}/` } }] } } } },
  }),
  "guard-response": (port) => ({
    policy: { traffic: { ai: { promptGuard: { response: [{ webhook: { url: `http://127.0.0.1:${port}/` } }] } } } },
  }),
  "budget-alert": (port) => ({
    policy: {
      traffic: {
        budgets: {
          limits: [{ name: "all", tokens: 1, per: "day", hard: false }],
          webhook: { url: `http://127.0.0.1:${port}/` },
        },
      },
    },
  }),
  host: (port) => ({ backend: { host: `127.0.0.1:${port}` } }),
  "host-h2c": (port) => ({ backend: { host: `127.0.0.1:${port}`, protocol: "h2c" } }),
  "base-url": (port) => ({
    backend: { ai: { provider: { openAICompatible: { baseUrl: `http://127.0.0.1:${port}` } } } },
  }),
  "host-override": (port) => ({
    backend: { ai: { provider: { openAI: {} }, hostOverride: `http://127.0.0.1:${port}` } },
  }),
  "group-override": (port) => ({
    backend: {
      ai: {
        groups: [{ providers: [{ name: "a", provider: { openAI: {} }, hostOverride: `http://127.0.0.1:${port}` }] }],
      },
    },
  }),
  "model-base-url": (port) => ({
    backend: {
      ai: {
        models: [{ name: "m", provider: "openAI", params: { baseUrl: `http://127.0.0.1:${port}`, apiKey: "k" } }],
      },
    },
  }),
  "mcp-server": (port) => ({
    backend: { mcp: { targets: [{ name: "a", mcp: { url: `http://127.0.0.1:${port}/mcp` } }] } },
    body: initialize,
  }),
  "sse-server": (port) => ({
    backend: { mcp: { targets: [{ name: "a", sse: { url: `http://127.0.0.1:${port}/sse` } }] } },
    body: initialize,
  }),
  "api-description": (port) => ({
    backend: {
      mcp: {
        targets: [{ name: "a", openapi: { url: `http://127.0.0.1:${port}/a.json`, server: "http://api.invalid" } }],
      },
    },
    body: initialize,
  }),
};

function globalLimit(host: string): object {
  return {
    global: {
      host,
      timeout: "30s",
      domain: "d",
      descriptors: [{ entries: [{ key: "k", value: '"v"' }], type: "requests" }],
    },
  };
}

/** A server that answers nothing and notes whether something was sent to it. */
async function listen(t: TestContext): Promise<{ port: number; readonly heard: boolean }> {
  let heard = false;
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", () => {
      heard = true;
      socket.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return {
    port: (server.address() as AddressInfo).port,
    get heard() {
      return heard;
    },
  };
}

function documents(rows: readonly (readonly [string, Row])[]): KubernetesObject[] {
  const at = (name: string) => ({ name, namespace: "default" });
  const gateway = {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "Gateway",
    metadata: at("edge"),
    spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
  };
  const own = rows.flatMap(([name, { policy, backend = demo }]) => [
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "HTTPRoute",
      metadata: at(name),
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: [
          {
            matches: [{ path: { type: "PathPrefix", value: `/${name}/` } }],
            backendRefs: [{ group: "policy.gateway.internal", kind: "Backend", name }],
          },
        ],
      },
    },
    { apiVersion: "policy.gateway.internal/v1alpha1", kind: "Backend", metadata: at(name), spec: backend },
    ...(policy === undefined
      ? []
      : [
          {
            apiVersion: "policy.gateway.internal/v1alpha1",
            kind: "GatewayPolicy",
            metadata: at(name),
            spec: {
              targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name }],
              ...policy,
            },
          },
        ]),
  ]);
  return [gateway, ...own];
}

for (const isCluster of [false, true]) {
  test(
    isCluster ? "from a cluster no address of this machine is asked" : "in files each address is asked",
    async (t) => {
      const servers = new Map<string, { port: number; readonly heard: boolean }>();
      const rows: (readonly [string, Row])[] = [];
      for (const [name, row] of Object.entries(ROWS)) {
        const server = await listen(t);
        servers.set(name, server);
        rows.push([name, row(server.port)]);
      }
      // Otherwise the documents are refused before anything connects.
      restrictNetworks(isCluster ? "127.0.0.0/8" : undefined);
      t.after(() => restrictNetworks(undefined));
      const objects = documents(rows);
      const app = await start(objects, isCluster);
      const [port = 0] = app.ports().values();
      t.after(() => Promise.all([app.stop(), app.stop()]));
      const ask = async (name: string, { body = chat, headers = {}, isPage = false }: Row): Promise<void> => {
        const path = body === chat ? `/${name}/v1/chat/completions` : `/${name}/`;
        const call = {
          method: "POST",
          headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
          body: JSON.stringify(body),
        };
        const answer = await fetch(
          `http://127.0.0.1:${port}${path}`,
          isPage ? { headers: { accept: "text/html" } } : call,
        );
        // A row that was refused as invalid would prove nothing.
        assert.notEqual(answer.headers.get("x-gateway-error"), "policy_invalid", name);
        await answer.text();
      };
      await Promise.all(rows.map(([name, row]) => ask(name, row)));
      const silent = () => rows.map(([name]) => name).filter((name) => servers.get(name)?.heard !== true);
      if (isCluster) assert.deepEqual(silent(), Object.keys(ROWS));
      // On a busy machine a time limit may end before the first connection.
      else
        await eventually("each address is asked", async () => {
          for (const [name, row] of rows) if (silent().includes(name)) await ask(name, row);
          return silent().length === 0;
        });
    },
  );
}

function start(objects: readonly KubernetesObject[], isCluster: boolean): Promise<App> {
  const source = createSnapshotSource(() => undefined);
  if (isCluster) source.take(createSnapshot("default/edge", objects, {}));
  const settings = "config: { adminAddr: off }";
  const text = isCluster ? settings : [settings, ...objects.map((object) => stringify(object))].join("\n---\n");
  return startApp({
    sources: { text },
    ...(isCluster ? { cluster: source } : {}),
    environment: {},
    clock: systemClock,
    output: {
      write: () => undefined,
      dropped: () => 0,
      flushSync: () => undefined,
    },
    version: "test",
    readStdin: () => "",
  });
}
