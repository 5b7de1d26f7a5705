/**
 * What an API server answered instead of what was asked for.
 */
export class ApiError extends Error {
  readonly status: number;
  /** One word of the server, for example `Conflict` or `Expired`. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
  }
}

/** From a `Status` object, as a body or as the object of an ERROR event. */
export function apiError(status: number, body: unknown): ApiError {
  const { code, reason, message } = (typeof body === "object" && body !== null ? body : {}) as {
    code?: unknown;
    reason?: unknown;
    message?: unknown;
  };
  return new ApiError(
    typeof code === "number" ? code : status,
    typeof reason === "string" ? reason : "",
    typeof message === "string" ? message : `the API server answered ${status}`,
  );
}
