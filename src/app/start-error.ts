/**
 * The reasons why the gateway did not start, one line each. Every start failure becomes a StartError, so that operators
 * see a sentence instead of a stack trace.
 */
export class StartError extends Error {
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super(lines.join("\n"));
    this.name = "StartError";
    this.lines = lines;
  }
}

/** Converts any error of the start. */
export function asStartError(error: unknown): StartError {
  return error instanceof StartError ? error : new StartError([(error as Error).message]);
}

export function orStartError<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw asStartError(error);
  }
}
