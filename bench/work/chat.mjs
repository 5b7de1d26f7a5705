/**
 * Chat requests as they are in production: with guards, a budget, history and OTLP; with failover from a provider that
 * fails 5% of the requests; and requests of the size that Claude Code sends.
 */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { PROVIDER, WORKLOADS } from "../support/workloads.mjs";
import { agentgatewayRoute, gatewayRoute } from "./config.mjs";

const bench = join(dirname(fileURLToPath(import.meta.url)), "..");
const CHAT = WORKLOADS.find(({ title }) => title.startsWith("chat JSON")).request;
const CLAUDE_CODE_BYTES = 80 * 1024;
/** Every 20th request: 5%. */
const FAIL_EVERY = "20";

const guard = () => ({
  promptGuard: {
    request: [{ regex: { action: "mask", rules: [{ builtin: "email" }, { pattern: "secret-[0-9]+" }] } }],
    response: [{ regex: { action: "mask", rules: [{ builtin: "creditCard" }] } }],
  },
});

const GUARDED = {
  title: "chat with guards, token budget, history, and OTLP",
  backends: { backendPort: [PROVIDER], collectorPort: [join(bench, "features/sink.mjs")] },
  configure: {
    gateway: ({ port, backendPort, collectorPort, folder }) =>
      gatewayRoute({
        port,
        config: {
          store: { folder: join(folder, `${port}-store`) },
          history: { folder: join(folder, `${port}-history`) },
          telemetry: { otlp: { endpoint: `http://127.0.0.1:${collectorPort}` } },
        },
        backend: { ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: `127.0.0.1:${backendPort}` } },
        policies: { ai: guard(), budgets: { limits: [{ name: "all", tokens: 1_000_000_000_000, per: "day" }] } },
      }),
    // It has no history and no budget: a token limit stands for the budget.
    agentgateway: ({ port, backendPort, collectorPort }) =>
      agentgatewayRoute({
        port,
        config: {
          tracing: { otlpEndpoint: `http://127.0.0.1:${collectorPort}`, otlpProtocol: "http", randomSampling: true },
        },
        backend: { ai: { name: "openai", provider: { openAI: {} }, hostOverride: `127.0.0.1:${backendPort}` } },
        policies: {
          ai: guard(),
          backendAuth: { key: "k" },
          localRateLimit: [
            { maxTokens: 1_000_000_000, tokensPerFill: 1_000_000_000, fillInterval: "1s", type: "tokens" },
          ],
        },
      }),
  },
  run: ({ port }, count) => sendLoad({ port, request: CHAT, count, connections: 32 }),
  perRound: 2000,
  warmUp: 12_000,
};

const FAILOVER = {
  title: "chat with failover, 5% of requests fail at the first provider",
  backends: { backendPort: [PROVIDER, FAIL_EVERY], secondPort: [PROVIDER] },
  configure: {
    // Without a pause of the failed provider, so that each failure is followed by a failover.
    gateway: ({ port, backendPort, secondPort }) =>
      gatewayRoute({
        port,
        backend: {
          ai: {
            groups: [backendPort, secondPort].map((provider) => ({
              providers: [{ provider: { openAI: {} }, auth: { key: "k" }, hostOverride: `127.0.0.1:${provider}` }],
            })),
            cooldown: { allowedFailures: 1000 },
          },
        },
      }),
    agentgateway: ({ port, backendPort, secondPort }) =>
      agentgatewayRoute({
        port,
        backend: {
          ai: {
            groups: [backendPort, secondPort].map((provider, i) => ({
              providers: [{ name: `provider${i}`, provider: { openAI: {} }, hostOverride: `127.0.0.1:${provider}` }],
            })),
          },
        },
        policies: { backendAuth: { key: "k" }, retry: { attempts: 2, codes: [503] } },
      }),
  },
  run: GUARDED.run,
  perRound: 2000,
  warmUp: 12_000,
};

function claudeCodeBody() {
  const tools = Array.from({ length: 20 }, (_, i) => ({
    name: `Tool${i}`,
    description: "Executes a command in a persistent shell and returns its output. ".repeat(20),
    input_schema: {
      type: "object",
      properties: { command: { type: "string", description: "The command" }, timeout: { type: "number" } },
      required: ["command"],
    },
  }));
  const body = {
    model: "claude-sonnet-4-5",
    max_tokens: 8192,
    stream: true,
    system: [{ type: "text", text: "You are a coding agent. ".repeat(600), cache_control: { type: "ephemeral" } }],
    tools,
    messages: [],
  };
  for (let turn = 0; JSON.stringify(body).length < CLAUDE_CODE_BYTES; turn++) {
    const id = `toolu_${turn}`;
    body.messages.push(
      { role: "user", content: [{ type: "text", text: `Fix the failing test number ${turn}.` }] },
      { role: "assistant", content: [{ type: "tool_use", id, name: "Tool1", input: { command: "npm test" } }] },
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: id, content: "ok 12 - reads a file\n".repeat(80) }],
      },
      { role: "assistant", content: [{ type: "text", text: "The test passes now. ".repeat(20) }] },
    );
  }
  body.messages.push({ role: "user", content: [{ type: "text", text: "Commit it." }] });
  return JSON.stringify(body);
}

const CLAUDE_REQUEST = httpRequest({
  method: "POST",
  path: "/v1/messages",
  body: claudeCodeBody(),
  headers: { "anthropic-version": "2023-06-01", "x-api-key": "k" },
});

const CLAUDE_CODE = {
  title: "Claude Code request of 80 KB, stream of 30 events",
  backends: { backendPort: [join(bench, "work/messages-provider.mjs")] },
  configure: {
    gateway: ({ port, backendPort }) =>
      gatewayRoute({
        port,
        backend: { ai: { provider: { anthropic: {} }, auth: { key: "k" }, hostOverride: `127.0.0.1:${backendPort}` } },
      }),
    agentgateway: ({ port, backendPort }) =>
      agentgatewayRoute({
        port,
        backend: { ai: { name: "anthropic", provider: { anthropic: {} }, hostOverride: `127.0.0.1:${backendPort}` } },
        policies: { backendAuth: { key: "k" }, ai: { routes: { "/v1/messages": "messages" } } },
      }),
  },
  run: ({ port }, count) => sendLoad({ port, request: CLAUDE_REQUEST, count, connections: 16 }),
  perRound: 300,
  warmUp: 2000,
};

export const CHATS = [GUARDED, FAILOVER, CLAUDE_CODE];
