/**
 * An error that a request, a peer or a server causes, and whose message says all: it has no stack. Collecting one costs
 * ten times as much as the refusal that it is for, and whoever sends nonsense chooses how often.
 */

export class ExpectedError extends Error {
  constructor(message?: string, options?: ErrorOptions) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Runs a handler; if it throws, `end` gives up what it was for. */
export function contain(action: () => void, end: () => void): void {
  try {
    action();
  } catch (error) {
    surface(error);
    try {
      end();
    } catch (another) {
      surface(another);
    }
  }
}

/** Out of every handler's way: the process counts and logs it; in a test it is a failure. */
export function surface(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
