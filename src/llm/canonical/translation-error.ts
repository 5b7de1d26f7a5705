/**
 * The two ways in which a translation fails: the request cannot be said in the provider's dialect, or what the provider
 * said is no answer.
 */
import { ExpectedError } from "../../base/expected-error.ts";

/** A 400 that names the member. */
export class TranslationError extends ExpectedError {
  readonly param: string;

  constructor(param: string, message: string) {
    super(message);
    this.name = "TranslationError";
    this.param = param;
  }
}

/** An error inside a stream, or something that cannot be an answer. */
export class UpstreamAnswerError extends ExpectedError {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "UpstreamAnswerError";
    this.status = status;
  }
}

export const ENDED_EARLY = "the provider's stream ended early";
