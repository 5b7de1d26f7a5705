/**
 * The words of other programs (agentgateway, LiteLLM, Envoy AI Gateway, supergateway, clients' lists of servers) and what
 * to write here instead, or that there is nothing of the kind. Asked before any guess by spelling, which would mislead.
 * A row holds only for fields that are unknown at their place.
 */

export interface ForeignWord {
  readonly word: string;
  /** Fields that are known where the word stands; without any, it holds everywhere. */
  readonly beside: readonly string[];
  readonly say: string;
}

const GUIDE = "see docs/moving-here.md";
const ROOT = ["gateways", "routes"];
const REMOTE = ["url", "forwardHeaders"];
const LIMIT = ["unit", "burst"];
const MODEL = ["provider", "params"];
const TARGET = ["stdio", "shared"];
const PROCESS = ["adminAddr", "sensitiveHeaders"];

const write = (beside: readonly string[], words: readonly string[], instead: string): ForeignWord[] =>
  words.map((word) => ({ word, beside, say: `write ${instead}` }));

const unsupported = (words: readonly string[], instead = ""): ForeignWord[] =>
  words.map((word) => ({ word, beside: [], say: `not supported here${instead === "" ? "" : `; ${instead}`}` }));

export const FOREIGN_WORDS: readonly ForeignWord[] = [
  // agentgateway
  ...write(ROOT, ["binds"], `\`gateways\` and \`routes\` instead (${GUIDE})`),
  ...write(ROOT, ["backends"], "`backends` inside a route"),
  ...write(REMOTE, ["host", "port", "path"], "one `url` instead of `host`, `port` and `path`"),
  ...write(["exact", "regex", "name"], ["value"], "`exact` or `regex` beside `name`"),
  ...write(["file"], ["value", "location"], "the text of `value` as `key` itself, and `header` beside it"),
  ...write(
    LIMIT,
    ["maxTokens", "tokensPerFill", "fillInterval", "requestsPerUnit", "type"],
    "`requests` or `tokens`, and `unit`",
  ),
  ...write(["provider", "groups"], ["routes"], "nothing: the format is recognised by the request's path"),
  ...write(MODEL, ["auth"], "`params.apiKey`"),
  ...write(MODEL, ["transformation"], '`params.model`, where `"*"` stands for what `*` in `name` matched'),
  ...write(MODEL, ["guardrails"], "`policies.ai.promptGuard` of the section or route"),
  ...write(["models"], ["guardrails"], "`policies.ai.promptGuard`"),
  ...write(PROCESS, ["mcp"], "`sessionIdleTtl` beside `targets`"),
  ...write(PROCESS, ["modelCatalog"], "`modelCatalog` below `llm` or `ai`"),
  ...write(["targets", "prefixMode"], ["sessionTtl"], "`sessionIdleTtl`"),
  ...unsupported(["providers"], "write `provider` and `params` in each entry of `models`"),
  ...unsupported(["azureProjectName"], "Azure is reached by `azureResourceName`"),
  ...unsupported(["a2a"], "write a backend `a2a`"),
  ...unsupported(["tcpRoutes", "tlsRoutes", "routeGroups", "workloads", "frontendPolicies"]),
  ...unsupported(["extProc", "csrf", "oidc", "networkAuthorization", "jwtSign", "tokenExchange"]),
  ...unsupported([
    "openapi",
    "conditional",
    "delay",
    "buffer",
    "tunnelProtocol",
    "hbone",
    "database",
    "evictionPolicy",
  ]),
  ...unsupported(["inferenceRouting", "sessionAffinity", "agentCore"]),

  // LiteLLM
  ...write(MODEL, ["model_name"], "`name`"),
  ...write(MODEL, ["litellm_params"], "`provider` and `params`"),
  ...write(["baseUrl", "apiKey"], ["api_base"], "`baseUrl`"),
  ...write(["baseUrl", "apiKey"], ["rpm", "tpm"], "`policies.rateLimit` of the section or route"),
  ...write(ROOT, ["router_settings"], `\`llm.virtualModels\` (${GUIDE})`),
  ...write(ROOT, ["litellm_settings"], `fields of \`llm\` and its \`policies\` (${GUIDE})`),
  ...write(ROOT, ["general_settings"], `\`policies.apiKey\` instead of \`master_key\` (${GUIDE})`),
  ...write(ROOT, ["environment_variables"], "`${NAME}` where a value is needed"),
  ...write(ROOT, ["mcp_servers"], "`mcp.targets`"),
  ...write(["models"], ["fallbacks", "router_settings"], "`virtualModels` with `failover`"),
  ...write(["models"], ["master_key"], "`policies.apiKey`"),
  ...unsupported(["model_info", "max_budget", "callbacks", "success_callback"]),
  ...unsupported(["drop_params"], "parameters that a provider does not know are rejected and named"),

  // supergateway and mcp-proxy
  ...write(["targets"], ["outputTransport"], "nothing: `/mcp` and `/sse` are both served"),
  ...write(["targets"], ["streamableHttpPath", "ssePath", "messagePath"], "`routes[].matches` with an `mcp` backend"),
  ...write(["targets"], ["sessionTimeout"], "`sessionIdleTtl`"),
  ...write(["targets"], ["stateful"], "nothing: sessions are always kept"),
  ...write(["targets"], ["healthEndpoint"], "nothing: `/healthz/ready` is on the admin address"),
  ...write(ROOT, ["logLevel"], "`config.logging.level`"),
  ...write(["targets"], ["logLevel"], "`config.logging.level` beside `mcp`"),
  ...write(REMOTE, ["oauth2Bearer", "header"], "`headers`"),

  // Clients' lists of servers
  ...write(TARGET, ["type", "transport"], "`stdio`, `mcp` or `sse`: the field's name says which it is"),
  ...write(TARGET, ["autoApprove", "alwaysAllow"], "`policies.mcpAuthorization`"),
  ...unsupported(["disabled"], "leave the entry out"),
];

/** Kinds of documents of other gateways. */
export const FOREIGN_KINDS: Readonly<Record<string, string>> = {
  AIGatewayRoute: "write an HTTPRoute, and the providers as `services` or `llm` in the configuration file",
  AIServiceBackend: "write the provider as `ai` below `services` in the configuration file",
  BackendSecurityPolicy: "write the credential as `auth` of the `ai` backend",
  MCPRoute: "write an HTTPRoute, and the servers as `mcp` below `services` in the configuration file",
  BackendTrafficPolicy: "write a GatewayPolicy with `spec.traffic`",
  SecurityPolicy: "write a GatewayPolicy with `spec.traffic`",
  AgentgatewayPolicy: "write a GatewayPolicy",
  AgentgatewayBackend: "write the backend below `services` in the configuration file",
};

/** What is said of an unknown field, if it is such a word there. */
export function foreignWord(word: string, known: readonly string[]): string | undefined {
  return FOREIGN_WORDS.find((row) => row.word === word && row.beside.every((field) => known.includes(field)))?.say;
}
