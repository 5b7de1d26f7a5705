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
