/**
 * The request cannot be sent to a target; the client is told why.
 */
import { ExpectedError } from "../../base/expected-error.ts";
import type { LlmError } from "../request/llm-errors.ts";

export class PlanError extends ExpectedError {
  readonly error: LlmError;

  constructor(error: LlmError) {
    super(error.message);
    this.name = "PlanError";
    this.error = error;
  }
}
