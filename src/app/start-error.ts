/**
 * Reports why the gateway did not start, one line per problem, instead of a stack trace.
 */
export class StartError extends Error {
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super(lines.join("\n"));
    this.name = "StartError";
    this.lines = lines;
  }
}

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
