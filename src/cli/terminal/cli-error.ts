/**
 * How a command ends when it cannot do what was asked: one line that says what to do, and an exit code.
 * 1: it failed. 2: it was called wrongly.
 */
export class CliError extends Error {
  readonly exitCode: 1 | 2;

  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message);
    this.name = "CliError";
    this.exitCode = exitCode;
  }
}

export function usageError(message: string): CliError {
  return new CliError(message, 2);
}
