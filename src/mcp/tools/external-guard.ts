/**
 * Sends the texts of a server's messages to webhooks and moderation services before the client receives the messages.
 * The messages of one call, and those outside of calls, keep their order while a check is pending.
 */

import { surface } from "../../base/errors.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { checkAll } from "../../llm/guards/guard-services.ts";
import { GuardRejection } from "../../llm/guards/guarded-text.ts";
import type { GuardReporter } from "../protocol/call.ts";
import { edited, type ServerMessage } from "../protocol/json-rpc.ts";
import type { Target } from "../server-side/target.ts";
import { type FoundTexts, messageTexts, rejectedMessage, tooLargeMessage } from "./result-guard.ts";
import type { ExternalGuards } from "./tool-settings.ts";

/** More notifications and requests of a server are dropped while a guard is slow. */
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
  readonly #target: Pick<Target, "name" | "messages">;
  #last: Promise<void> = Promise.resolve();
  readonly #checks: PendingChecks;
  #waiting = 0;
  #isClosed = false;

  constructor(env: ExternalGuards, target: Pick<Target, "name" | "messages">, checks: PendingChecks) {
    this.#env = env;
    this.#target = target;
    this.#checks = checks;
  }

  /** Calls `deliver` once, immediately if there is nothing to check and nothing to wait for. */
  check(message: ServerMessage, options: CheckOptions, deliver: Deliver): void {
    const isAnswer = message.kind === "result" || message.kind === "error";
    const isLarge = message.text.length > SLICED_BYTES;
    const found = isLarge ? undefined : finish(messageTexts(message, options.method));
    if (found === "nothing" && this.#waiting === 0) deliver(this.#isClosed ? undefined : message);
    else if (found !== "nothing" && !isAnswer && this.#waiting >= MAX_WAITING_MESSAGES) deliver(undefined);
    else {
      const release = this.#target.messages.hold(message.text.length);
      if (release) this.#enqueue(async () => deliver(await this.#checked(message, found, options)), release);
      else {
        const rejected = this.#rejected(message, this.#env.refusal, options);
        this.afterwards(() => deliver(this.#isClosed ? undefined : rejected));
      }
    }
  }

  #rejected(message: ServerMessage, reason: string, { method, report }: CheckOptions): ServerMessage | undefined {
    report?.("rejected", "resultGuard");
    return rejectedMessage(message, reason, method);
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

  #enqueue(work: () => Promise<void>, release?: () => void): void {
    this.#waiting += 1;
    this.#checks.pending += 1;
    this.#last = this.#last
      .then(work)
      .catch(surface)
      .finally(() => {
        this.#waiting -= 1;
        this.#checks.pending -= 1;
        release?.();
      });
  }

  async #checked(
    message: ServerMessage,
    known: FoundTexts | undefined,
    options: CheckOptions,
  ): Promise<ServerMessage | undefined> {
    const { method, tool, report } = options;
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
        const mcp = { target: this.#target.name, method, tool };
        const texts = await checkAll(guards, { direction: "response", model: undefined, texts: found.texts, mcp });
        const edits = texts === found.texts ? [] : found.edits(texts);
        passed = edits.length === 0 ? message : edited(message, edits);
        if (passed !== message) report?.("masked", "resultGuard");
      }
    } catch (error) {
      if (!(error instanceof GuardRejection)) surface(error);
      passed = this.#rejected(message, error instanceof GuardRejection ? error.message : refusal, options);
    }
    return this.#isClosed ? undefined : passed;
  }
}
