/**
 * What guards in shadow mode find in the texts of one call, as the shadow report has it: the guard and its patterns, never
 * the text.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { TextGuard } from "../request/llm-call.ts";

export interface GuardWatch {
  found(guard: TextGuard): void;
  /** An enforced guard would have rejected what it cannot read. */
  unread(guards: readonly TextGuard[], reason: string): void;
}

export function createGuardWatch(exchange: Exchange, direction: "request" | "response"): GuardWatch {
  const note = (guard: TextGuard, detail: string): void =>
    // A call that a guard rejects has been counted by limits.
    exchange.deniedInShadow("ai", detail, { rule: `promptGuard.${direction}: ${guard.name}`, isCounted: true });
  return {
    found: (guard) => note(guard, `a ${direction} guard would ${guard.action} what matches \`${guard.name}\``),
    unread(guards, reason) {
      for (const guard of guards) note(guard, `a ${direction} guard would reject the ${direction}: ${reason}`);
    },
  };
}
