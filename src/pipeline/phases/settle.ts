/**
 * The last step of every exchange: observers of the body, settle hooks (inner → outer), the body snapshot, then access
 * log, metrics and recent requests. What throws here is logged, and the rest still runs.
 */
import type { Exchange } from "../../core/exchange.ts";
import { type CompiledScope, type Outcome, rejectPromise } from "../../core/policy.ts";
import type { BodyCapture } from "../records/body-capture.ts";
import type { PipelineEnv } from "./pipeline-env.ts";

export type SettleEnv = Pick<PipelineEnv, "settled" | "defect">;

export function settle(
  env: SettleEnv,
  exchange: Exchange,
  entered: readonly CompiledScope[],
  outcome: Outcome,
  capture: BodyCapture | undefined,
): void {
  const { response, trace } = exchange;
  if (response?.observers)
    for (const observer of response.observers) guarded(env, exchange, () => observer.end(outcome.end === "complete"));
  for (let i = entered.length - 1; i >= 0; i--) {
    for (const policy of (entered[i] as CompiledScope).settle) {
      guarded(env, exchange, () => rejectPromise("settle", policy.hooks.settle?.(exchange, outcome)));
    }
  }
  capture?.emit(trace, "response", response?.headers.get("content-type"));
  guarded(env, exchange, () => env.settled(exchange, outcome));
}

/** A defect of an observer or a settle hook costs its own work, not the exchange. */
export function guarded(env: Pick<SettleEnv, "defect">, exchange: Exchange, action: () => void): void {
  try {
    action();
  } catch (error) {
    env.defect(exchange, error);
  }
}
