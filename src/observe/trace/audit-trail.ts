/**
 * Where backends tell which tool, prompt, resource or model is called with what, for the audit records of
 * `config.audit`. An exchange has one only where that is configured.
 */

export interface AuditTrail {
  /** An MCP request was read; `params` as the client sent them. */
  asked(id: string, method: string, params: Readonly<Record<string, unknown>>): void;
  /** It ended; `answer` is the text of the server's message, where there is one. */
  ended(id: string, target: string, outcome: string, answer: string | undefined): void;
  /** A backend begins to answer; what is returned sees the bytes that the client gets. */
  answered(
    status: number,
    contentType: string | undefined,
    contentEncoding: string | undefined,
  ): AnswerObserver | undefined;
  /** Throws where a record is required and cannot be written. */
  check(): void;
}

export interface AnswerObserver {
  data(chunk: Buffer): void;
  end(complete: boolean): void;
}
