/**
 * Defines the audit trail, to which backends report the called tool, prompt, resource, or model and its parameters, for
 * the audit records of `config.audit`. An exchange has an audit trail only if auditing is configured.
 */

export interface AuditTrail {
  /** Called when an MCP request has been parsed. `params` are the client's parameters. */
  asked(id: string, method: string, params: Readonly<Record<string, unknown>>): void;
  /** Called when the request ended. `answer` is the text of the server's message, if any. */
  ended(id: string, target: string, outcome: string, answer: string | undefined): void;
  /** Called when a backend starts to respond. The returned observer receives the bytes that are sent to the client. */
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
