/**
 * The request attributes that policies and backends set. CEL expressions, logs and metrics read them; no code acts on them.
 */

export interface BackendFacts {
  readonly name: string;
  readonly type: "static" | "mcp" | "ai" | "internal";
  readonly protocol: "http" | "mcp" | "llm";
}

/** The claims of a verified token, unchanged. */
export type Claims = Readonly<Record<string, unknown>>;

export interface McpFacts {
  methodName?: string;
  sessionId?: string;
  target?: string;
  tool?: { name: string; target: string };
  prompt?: { name: string; target: string };
  resource?: { uri: string; target: string };
  /** Set when the request has ended. */
  outcome?: McpOutcome;
}

/** `denied`: by a rule of `mcpAuthorization`. `failed`: the server was unreachable, exited, or timed out. */
export type McpOutcome = "ok" | "tool_error" | "rpc_error" | "denied" | "failed" | "cancelled";

/** The items that the MCP authorization policies allow for this request. It filters lists and checks calls. */
export interface McpAccess {
  /** `call` holds the parameters if the item is a tool that is called; undefined if it is listed. */
  allows(
    kind: "tool" | "prompt" | "resource",
    name: string,
    target: string,
    call?: { readonly arguments?: unknown },
  ): boolean;
}

/** The models that the client's API key may use. It filters lists and checks calls. */
export interface ModelAccess {
  allows(model: string): boolean;
  /** The listed names that are not patterns. */
  readonly names: readonly string[];
}

/** The attributes of an A2A call. */
export interface A2aFacts {
  method: string;
  taskId?: string;
  contextId?: string;
  /** The skill in the metadata of the client's message. */
  skill?: string;
  /** The agent's name and skills, from its card. */
  agent?: string;
  skills?: readonly string[];
}

/** The fields of `LlmFacts` that are assigned, as a class so that every request has the same object shape. */
export class LlmCallFacts {
  requestModel?: string;
  responseModel?: string;
  /** The provider's id of the response, for support requests. */
  providerRequestId?: string;
  provider?: string;
  streaming?: boolean;
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  cachedInputTokens?: number;
  cacheCreationInputTokens?: number;
  reasoningTokens?: number;
  cost?: number;
  /** The number of provider calls, if one request makes several. */
  providerCalls?: number;
}

export interface LlmFacts extends LlmCallFacts {
  /** Tokens charged at admission, before the actual counts were known. */
  estimatedTokens?: number;
  /** The output maximum that the request sets, if any. */
  readonly maxOutputTokens?: number | undefined;
}

/** All request attributes; CEL uses the same names. */
export interface Facts {
  jwt?: Claims;
  apiKey?: Readonly<Record<string, unknown>>;
  basicAuth?: { readonly username: string };
  llm?: LlmFacts;
  mcp?: McpFacts;
  a2a?: A2aFacts;
  backend?: BackendFacts;
}
