/**
 * Defines the request attributes that policies and backends set. CEL expressions, logs, and metrics read them.
 */

export interface BackendAttributes {
  readonly name: string;
  readonly type: "static" | "mcp" | "ai" | "internal";
  readonly protocol: "http" | "mcp" | "llm";
}

export type Claims = Readonly<Record<string, unknown>>;

export interface McpAttributes {
  methodName?: string;
  sessionId?: string;
  target?: string;
  tool?: { name: string; target: string };
  prompt?: { name: string; target: string };
  resource?: { uri: string; target: string };
  /** The outcome is set when the request has ended. */
  outcome?: McpOutcome;
}

/** `denied` means that an authorization rule rejected the request. */
export type McpOutcome = "ok" | "tool_error" | "rpc_error" | "denied" | "failed" | "cancelled";

export interface McpAccess {
  /** `call` is set if the item is a tool that is called. */
  allows(
    kind: "tool" | "prompt" | "resource",
    name: string,
    target: string,
    call?: { readonly arguments?: unknown },
  ): boolean;
}

export interface ModelAccess {
  allows(model: string): boolean;
  /** Lists the allowed models that are not patterns. */
  readonly names: readonly string[];
}

export interface A2aAttributes {
  method: string;
  taskId?: string;
  contextId?: string;
  /** The metadata of the client's message names the skill. */
  skill?: string;
  /** The name and skills come from the agent card. */
  agent?: string;
  skills?: readonly string[];
}

/** Most of these fields are assigned later. A class gives every request the same object shape. */
export class LlmCallAttributes {
  requestModel?: string;
  responseModel?: string;
  /** Support requests to the provider need this id. */
  providerRequestId?: string;
  /** Lists the client's parameters that were omitted, because the provider does not support them. */
  dropped?: readonly string[];
  provider?: string;
  streaming?: boolean;
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  cachedInputTokens?: number;
  cacheCreationInputTokens?: number;
  reasoningTokens?: number;
  cost?: number;
  /** The count is set only if the request caused more than one provider call. */
  providerCalls?: number;
  /** The prompt and the completion are set when the request has ended, if an expression of a record reads them. */
  prompt?: readonly LlmMessage[];
  completion?: readonly string[];
}

export interface LlmMessage {
  readonly role: string;
  readonly content: string;
}

export interface LlmAttributes extends LlmCallAttributes {
  /** Admission charges this estimate before the actual counts arrive. */
  estimatedTokens?: number;
  readonly maxOutputTokens?: number | undefined;
}

/** CEL expressions read the attributes under the same names. */
export interface RequestAttributes {
  jwt?: Claims;
  apiKey?: Readonly<Record<string, unknown>>;
  basicAuth?: { readonly username: string };
  extauthz?: Readonly<Record<string, unknown>>;
  mcpGuardrails?: Readonly<Record<string, unknown>>;
  llm?: LlmAttributes;
  mcp?: McpAttributes;
  a2a?: A2aAttributes;
  backend?: BackendAttributes;
}
