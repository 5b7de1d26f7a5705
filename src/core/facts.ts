/**
 * What policies and backends find out about a request: readable in CEL, written to logs and metrics. Nothing here acts.
 */

export interface BackendFacts {
  readonly name: string;
  readonly type: "static" | "mcp" | "ai" | "internal";
  readonly protocol: "http" | "mcp" | "llm";
}

/** Validated token claims, as the token carried them. */
export type Claims = Readonly<Record<string, unknown>>;

export interface McpFacts {
  methodName?: string;
  sessionId?: string;
  target?: string;
  tool?: { name: string; target: string };
  prompt?: { name: string; target: string };
  resource?: { uri: string; target: string };
  /** How the request ended, once it has. */
  outcome?: McpOutcome;
}

/** `denied`: by a rule of `mcpAuthorization`. `failed`: the server could not be reached, ended or was too slow. */
export type McpOutcome = "ok" | "tool_error" | "rpc_error" | "denied" | "failed" | "cancelled";

/** What an MCP authorization policy allows of this request: lists are filtered by it, calls checked against it. */
export interface McpAccess {
  /** `call` are the parameters where the item is a tool that is called, and undefined where it is listed. */
  allows(
    kind: "tool" | "prompt" | "resource",
    name: string,
    target: string,
    call?: { readonly arguments?: unknown },
  ): boolean;
}

/** The models that the client's key may use: lists are filtered by it, calls checked against it. */
export interface ModelAccess {
  allows(model: string): boolean;
  /** Those that are named, without patterns. */
  readonly names: readonly string[];
}

/** A call of an A2A agent. */
export interface A2aFacts {
  method: string;
  taskId?: string;
  contextId?: string;
  /** The skill that the client names in the metadata of its message. */
  skill?: string;
  /** The agent's name and skills, from its card. */
  agent?: string;
  skills?: readonly string[];
}

export interface LlmFacts {
  requestModel?: string;
  responseModel?: string;
  /** The provider's own id of its answer, for questions to its support. */
  providerRequestId?: string;
  provider?: string;
  streaming?: boolean;
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  cachedInputTokens?: number;
  cacheCreationInputTokens?: number;
  reasoningTokens?: number;
  /** What admission was charged with before the real counts were known. */
  estimatedTokens?: number;
  /** The most output that the request asks for, where it says so. */
  readonly maxOutputTokens?: number | undefined;
  cost?: number;
  /** Where one request is several calls of the provider: how many. */
  providerCalls?: number;
}

/** What policies and backends found out; readable in CEL under the same names. */
export interface Facts {
  jwt?: Claims;
  apiKey?: Readonly<Record<string, unknown>>;
  basicAuth?: { readonly username: string };
  llm?: LlmFacts;
  mcp?: McpFacts;
  a2a?: A2aFacts;
  backend?: BackendFacts;
}
