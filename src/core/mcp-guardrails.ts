/**
 * Defines how the MCP backend sends messages to the processors of `mcpGuardrails`.
 */
import type { HeaderList } from "../http/headers.ts";

export interface McpCheck {
  readonly method: string;
  /** The names of the targets that get the request. */
  readonly services: readonly string[];
  /** The parameters or the result as JSON, or undefined if the processors do not get them. */
  readonly body: string | undefined;
}

export interface McpRejection {
  /** The code, message, and data of the JSON-RPC error that the client receives. */
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  /** The reason for the request records. */
  readonly detail: string;
  /** True if a processor failed, and false if it rejected the message. */
  readonly isFailure: boolean;
}

export type McpVerdict =
  | { readonly rejection: McpRejection }
  | {
      readonly rejection?: undefined;
      /** The new parameters or result as JSON, or undefined if no processor changed them. */
      readonly body: string | undefined;
      /** Applies the changes to the headers that the targets get. */
      readonly changeHeaders?: (headers: HeaderList) => void;
    };

export interface McpGuardrails {
  checksRequest(method: string): boolean;
  checksResponse(method: string): boolean;
  checkRequest(check: McpCheck): Promise<McpVerdict>;
  checkResponse(check: McpCheck): Promise<McpVerdict>;
}
