/**
 * Why the gateway did not start: lines to print, one per problem. Whatever keeps it from starting becomes one of these,
 * so that an operator reads a sentence and not a stack.
 */
export class StartError extends Error {
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super(lines.join("\n"));
    this.name = "StartError";
    this.lines = lines;
  }
}

/** At the start, what cannot be read or bound is a reason not to start. */
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
