/**
 * Backends report here which tool, prompt, resource or model is called with which parameters, for the audit records of
 * `config.audit`. An exchange has an audit trail only where that is configured.
 */

export interface AuditTrail {
  /** An MCP request was parsed. `params` are those of the client. */
  asked(id: string, method: string, params: Readonly<Record<string, unknown>>): void;
  /** The request ended. `answer` is the text of the server's message, if any. */
  ended(id: string, target: string, outcome: string, answer: string | undefined): void;
  /** A backend starts to respond. The returned observer receives the bytes that are sent to the client. */
  answered(
    status: number,
    contentType: string | undefined,
    contentEncoding: string | undefined,
  ): AnswerObserver | undefined;
  /** Throws if a record is required and cannot be written. */
  check(): void;
}

export interface AnswerObserver {
  data(chunk: Buffer): void;
  end(complete: boolean): void;
}
