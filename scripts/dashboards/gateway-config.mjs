/**
 * A gateway configuration that produces all events that the dashboard shows: calls that succeed, fail, are rejected and
 * are retried.
 */
import { join } from "node:path";
import { root } from "../steps.mjs";

/** `provider`, `collector` and `refused` are ports; the gateway writes its files to `folder`. */
export function gatewayConfig({ folder, provider, collector, refused }) {
  return {
    config: {
      adminAddr: "127.0.0.1:0",
      logging: { level: "info,access=off" },
      telemetry: {
        otlp: {
          endpoint: `http://127.0.0.1:${collector}`,
          metricsInterval: "1s",
          signals: ["traces", "metrics", "logs"],
        },
      },
      audit: { file: { path: join(folder, "audit.log") } },
      store: { folder: join(folder, "state") },
    },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "mcp",
        matches: [{ path: { pathPrefix: "/mcp" } }],
        backends: [
          {
            mcp: {
              targets: [
                { name: "demo", stdio: { cmd: process.execPath, args: [join(root, "dist", "demo-mcp-server.js")] } },
              ],
            },
          },
        ],
      },
      {
        name: "llm",
        matches: [{ path: { pathPrefix: "/v1" } }],
        backends: [
          {
            ai: {
              name: "llm",
              modelCatalog: join(root, "examples", "llm-costs", "prices.json"),
              cooldown: { initial: "1ms", max: "1ms" },
              groups: [
                {
                  providers: [
                    {
                      provider: {
                        openAICompatible: { baseUrl: `http://127.0.0.1:${provider}/failing`, name: "broken" },
                      },
                    },
                  ],
                },
                {
                  providers: [
                    { provider: { openAICompatible: { baseUrl: `http://127.0.0.1:${provider}/v1`, name: "demo" } } },
                  ],
                },
              ],
            },
          },
        ],
        policies: { apiKey: { keys: [{ key: "alice-secret", metadata: { user_id: "alice" } }] } },
      },
      {
        name: "mcp-failing",
        matches: [{ path: { pathPrefix: "/broken/mcp" } }],
        backends: [{ mcp: { targets: [{ name: "broken", mcp: { url: `http://127.0.0.1:${refused}/mcp` } }] } }],
      },
      {
        name: "llm-failing",
        matches: [{ path: { pathPrefix: "/broken/v1" } }],
        policies: { urlRewrite: { path: { prefix: "/v1" } } },
        backends: [
          {
            ai: {
              name: "broken",
              provider: { openAICompatible: { baseUrl: `http://127.0.0.1:${provider}/failing`, name: "broken" } },
            },
          },
        ],
      },
      {
        name: "failing",
        matches: [{ path: { exact: "/failing" } }],
        backends: [{ host: `127.0.0.1:${refused}` }],
      },
      {
        name: "limited",
        matches: [{ path: { exact: "/limited" } }],
        policies: { rateLimit: { local: [{ requests: 1, unit: "Hours" }] }, directResponse: { body: "ok" } },
      },
      {
        name: "global",
        matches: [{ path: { exact: "/global" } }],
        policies: {
          rateLimit: {
            global: {
              host: `127.0.0.1:${refused}`,
              domain: "gateway",
              failureMode: "open",
              timeout: "100ms",
              descriptors: [{ entries: [{ key: "all", value: '"all"' }], type: "requests" }],
            },
          },
          directResponse: { body: "ok" },
        },
      },
    ],
  };
}
