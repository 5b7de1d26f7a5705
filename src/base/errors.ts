/**
 * Separates expected errors, which a request, a peer, or a server causes, from defects. Expected errors have no
 * stack, because capturing one is expensive.
 */

export class ExpectedError extends Error {
  constructor(message?: string, options?: ErrorOptions) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Calls `end` if the action throws. Errors of both become uncaught exceptions and are not thrown to the caller. */
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

/** Rethrows the error as an uncaught exception. */
export function surface(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
