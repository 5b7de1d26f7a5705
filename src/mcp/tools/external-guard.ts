/**
 * Sends the texts of a server's messages to webhooks and moderation services before the client receives the messages.
 * The messages of one call, and those outside of calls, keep their order while a check is pending.
 */

import { surface } from "../../base/errors.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { checkAll } from "../../llm/guards/guard-webhook.ts";
import { GuardRejection } from "../../llm/guards/guarded-text.ts";
import type { GuardReporter } from "../protocol/call.ts";
import { edited, type ServerMessage } from "../protocol/json-rpc.ts";
import { type FoundTexts, messageTexts, rejectedMessage, tooLargeMessage } from "./result-guard.ts";
import type { ExternalGuards } from "./tool-settings.ts";

/** Limits the memory that a server can occupy while a guard is slow. */
const MAX_WAITING_MESSAGES = 64;

export interface CheckOptions {
  /** For a result or an error, this is the method of its request. */
  readonly method: string;
  readonly tool: string | undefined;
  readonly report: GuardReporter | undefined;
}

/** Counts the messages that wait in all queues of an upstream. */
export interface PendingChecks {
  pending: number;
}

/** Receives undefined if a notification or a request is rejected, or if the queue was closed. */
type Deliver = (message: ServerMessage | undefined) => void;

/** Runs the checks of one call, or of one connection, one after the other. */
export class GuardQueue {
  readonly #env: ExternalGuards;
  readonly #target: string;
  #last: Promise<void> = Promise.resolve();
  readonly #checks: PendingChecks;
  #waiting = 0;
  #isClosed = false;

  constructor(env: ExternalGuards, target: string, checks: PendingChecks) {
    this.#env = env;
    this.#target = target;
    this.#checks = checks;
  }

  /** Calls `deliver` once, immediately if there is nothing to check and nothing to wait for. */
  check(message: ServerMessage, options: CheckOptions, deliver: Deliver): void {
    const isAnswer = message.kind === "result" || message.kind === "error";
    const isLarge = message.text.length > SLICED_BYTES;
    const found = isLarge ? undefined : finish(messageTexts(message, options.method));
    if (found === "nothing") this.afterwards(() => deliver(this.#isClosed ? undefined : message));
    else if (!isAnswer && this.#waiting >= MAX_WAITING_MESSAGES) deliver(undefined);
    else this.#enqueue(async () => deliver(await this.#checked(message, found, options)));
  }

  /** Runs the action after the pending checks. */
  afterwards(action: () => void): void {
    if (this.#waiting === 0) action();
    else this.#enqueue(async () => action());
  }

  /** Messages that were not delivered yet are discarded. */
  close(): void {
    this.#isClosed = true;
  }

  #enqueue(work: () => Promise<void>): void {
    this.#waiting += 1;
    this.#checks.pending += 1;
    this.#last = this.#last
      .then(work)
      .catch(surface)
      .finally(() => {
        this.#waiting -= 1;
        this.#checks.pending -= 1;
      });
  }

  async #checked(
    message: ServerMessage,
    known: FoundTexts | undefined,
    { method, tool, report }: CheckOptions,
  ): Promise<ServerMessage | undefined> {
    const { guards, refusal } = this.#env;
    const run = <T>(steps: Steps<T>): T | Promise<T> =>
      message.text.length > SLICED_BYTES ? runInSlices(steps, () => false) : finish(steps);
    let passed: ServerMessage | undefined;
    try {
      if (this.#isClosed) return undefined;
      const found = known ?? (await run(messageTexts(message, method)));
      if (found === "nothing") passed = message;
      else if (found === "too large") passed = tooLargeMessage(message, refusal, method);
      else {
        const mcp = { target: this.#target, method, tool };
        const texts = await checkAll(guards, { direction: "response", model: undefined, texts: found.texts, mcp });
        const edits = texts === found.texts ? [] : found.edits(texts);
        passed = edits.length === 0 ? message : edited(message, edits);
        if (passed !== message) report?.("masked", "resultGuard");
      }
    } catch (error) {
      if (!(error instanceof GuardRejection)) surface(error);
      report?.("rejected", "resultGuard");
      passed = rejectedMessage(message, error instanceof GuardRejection ? error.message : refusal, method);
    }
    return this.#isClosed ? undefined : passed;
  }
}
