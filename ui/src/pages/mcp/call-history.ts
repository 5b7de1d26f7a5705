/**
 * Keeps the calls of the playground while the tab is open, so that they can be compared and repeated.
 */
import { signal } from "@preact/signals";
import type { Notification } from "./mcp-client.ts";

export interface Run {
  readonly state: "running" | "done" | "failed";
  readonly startedMs: number;
  readonly endedMs?: number;
  readonly notes: readonly Notification[];
  readonly progress?: { readonly done: number; readonly total: number | undefined; readonly message: string };
  readonly result?: unknown;
  readonly requestId?: string | undefined;
  readonly error?: string;
}

export interface PastCall {
  readonly id: number;
  /** When the call started, in milliseconds since the epoch. */
  readonly at: number;
  readonly endpoint: string;
  readonly method: string;
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly run: Run;
}

const KEPT_CALLS = 50;

let lastId = 0;

/** Newest first. */
export const pastCalls = signal<readonly PastCall[]>([]);

export function keepCall(call: Omit<PastCall, "id">): void {
  lastId += 1;
  pastCalls.value = [{ ...call, id: lastId }, ...pastCalls.peek()].slice(0, KEPT_CALLS);
}

/** A tool can report an error inside a successful response. */
export function hasFailed({ state, result }: Run): boolean {
  return state === "failed" || (result as { isError?: boolean } | undefined)?.isError === true;
}
