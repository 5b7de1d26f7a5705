/**
 * The request cannot be sent to a target; the client is told why.
 */
import { ExpectedError } from "../../../lib/text/expected-error.ts";
import type { LlmError } from "../../../llm/dialects/error-shape.ts";

export class PlanError extends ExpectedError {
  readonly error: LlmError;

  constructor(error: LlmError) {
    super(error.message);
    this.name = "PlanError";
    this.error = error;
  }
}
