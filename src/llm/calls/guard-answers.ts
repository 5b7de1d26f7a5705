/**
 * What an answer passes on its way to the client: regular expressions first, then guards by webhook, and nearest to the client
 * those in shadow mode.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import { checkAll } from "../guards/guard-webhook.ts";
import type { Dialect } from "../request/dialect.ts";
import type { PolicedCall } from "./apply-policies.ts";
import { GuardedCall } from "./guarded-call.ts";
import { watchedCall } from "./watched-call.ts";
import { WebhookCall } from "./webhook-call.ts";

export interface GuardedWay {
  /** What the answer is told to. */
  readonly shown: BackendCall;
  /** Before the first byte: what the answer comes from is ended when it is refused, and waits while it is looked at. */
  from(run: Pick<BackendRun, "abort" | "resume">): void;
}

/** `unreadable`: no guard can read such a stream. */
export function guardAnswers(
  { rules, model }: Pick<PolicedCall, "rules" | "model">,
  { format, pathStream }: Dialect,
  exchange: Exchange,
): "unreadable" | ((call: BackendCall) => GuardedWay) {
  const { responseGuards: guards, responseWebhooks: webhooks, watchedResponses } = rules;
  const isForeignStream = (format === "converse" || format === "invoke") && pathStream === true;
  if ((guards || webhooks) && isForeignStream) return "unreadable";
  // What is encoded could not be judged.
  if (webhooks || guards) exchange.request.headers.set("accept-encoding", "identity");
  return (call) => {
    const watched = watchedCall(call, exchange, watchedResponses, isForeignStream);
    const judged = webhooks
      ? new WebhookCall(
          watched,
          format,
          (texts) => checkAll(webhooks, { direction: "response", model, texts }),
          () => exchange.isOver,
        )
      : watched;
    if (guards === undefined) return { shown: judged, from: () => undefined };
    const guarded = new GuardedCall(judged, guards, format, () => exchange.isOver);
    return { shown: guarded, from: (run) => guarded.from(run) };
  };
}
