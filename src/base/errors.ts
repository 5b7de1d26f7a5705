/**
 * Separates expected errors from defects. An expected error is caused by a request, a peer, or a server. It has no
 * stack, because the message is sufficient and capturing a stack costs far more than rejecting the request, at a rate
 * that the client controls.
 */

export class ExpectedError extends Error {
  constructor(message?: string, options?: ErrorOptions) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Runs a handler. If it throws, `end` releases the connection or request that the handler served. */
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

/** Rethrows outside of every handler, so that the process counts and logs the error. In a test, the test fails. */
export function surface(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
