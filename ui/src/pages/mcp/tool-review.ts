/**
 * Defines the differences between the tools of an MCP backend and its lock file, as returned by `/debug/mcp/lock`.
 */
import type { Definition } from "./definition-text.ts";

export interface ToolChange {
  readonly target: string;
  readonly tool: string;
  readonly state: "new" | "changed" | "gone";
  readonly before?: Definition;
  readonly now?: Definition;
  readonly suspicious: readonly string[];
  readonly hash: string;
}

export interface ToolReview {
  readonly mayAccept: boolean;
  /** Explains why changes cannot be accepted. */
  readonly reason?: string;
  readonly targets: readonly { readonly target: string; readonly tools: number; readonly error?: string }[];
  readonly changes: readonly ToolChange[];
}
