/**
 * The same question to several servers at once: ends when each has answered or failed.
 */

import { type Call, type Failure, type Running, serverFailure } from "../protocol/call.ts";
import type { ClientRequest, ServerMessage } from "../protocol/json-rpc.ts";
import { largeOrSmall } from "../protocol/large-or-small.ts";
import { listProblem } from "../protocol/list-check.ts";
import type { Upstream } from "../server-side/upstream.ts";

export interface Part {
  readonly upstream: Upstream;
  readonly request: ClientRequest;
}

export interface PartOutcome extends Part {
  /** A result; an error of the server counts as a failure. */
  readonly result: ServerMessage | undefined;
  readonly failure: Failure | undefined;
}

/** What servers say meanwhile goes to `call`; the outcomes come in the order of the parts. */
export function gather(call: Call, parts: readonly Part[], done: (outcomes: readonly PartOutcome[]) => void): Running {
  const outcomes = new Map<Part, PartOutcome>();
  let isOver = false;
  const end = (part: Part, result: ServerMessage | undefined, failure: Failure | undefined): void => {
    outcomes.set(part, { ...part, result, failure });
    if (isOver || outcomes.size < parts.length) return;
    isOver = true;
    try {
      done(parts.map((one) => outcomes.get(one) as PartOutcome));
    } catch (error) {
      // The last part is not to blame, and the client would wait for ever.
      call.failed(serverFailure("the responses of the servers could not be merged"));
      throw error;
    }
  };
  if (parts.length === 0) {
    done([]);
    return { cancel: () => undefined };
  }
  const running = parts.map((part) =>
    part.upstream.call({
      request: part.request,
      headers: call.headers,
      wire: call.wire,
      notified: (message) => call.notified(message),
      asked: (question) => call.asked(question),
      answered: (message) =>
        largeOrSmall(
          message,
          () => listProblem(part.request, message, part.upstream.target.name),
          (problem) => {
            if (problem) end(part, undefined, problem);
            else if (message.kind === "result") end(part, message, undefined);
            else end(part, undefined, errorOf(message));
          },
          (failure) => end(part, undefined, failure),
        ),
      failed: (failure) => end(part, undefined, failure),
    }),
  );
  return {
    cancel: (reason) => {
      for (const one of running) one.cancel(reason);
    },
  };
}

/** How much they answered together. */
export function charsOf(outcomes: readonly PartOutcome[]): number {
  return outcomes.reduce((chars, { result }) => chars + (result?.text.length ?? 0), 0);
}

/** A server's error in the form of a failure. */
export function errorOf(message: ServerMessage): Failure {
  try {
    const { error } = JSON.parse(message.text) as { error?: { code?: unknown; message?: unknown; data?: unknown } };
    return {
      code: typeof error?.code === "number" ? error.code : -32603,
      message: String(error?.message ?? "error"),
      status: 200,
      ...(error?.data === undefined ? {} : { data: error.data }),
    };
  } catch {
    return { code: -32603, message: "the server's error could not be read", status: 200 };
  }
}
