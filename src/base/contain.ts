/**
 * What a handler of one connection throws ends that connection and nothing else. Node would take the exception for one
 * of the whole process; here its owner is told first, and then it goes on to the last resort (`unexpected-errors.ts`).
 */

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
