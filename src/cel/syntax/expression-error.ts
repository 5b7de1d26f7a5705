/**
 * Reports a problem in a CEL source, with a 1-based position relative to the source.
 */
export class ExpressionError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(source: string, offset: number, problem: string) {
    super(`cel: ${problem}`);
    this.name = "ExpressionError";
    const before = source.slice(0, offset);
    const lineStart = before.lastIndexOf("\n") + 1;
    this.line = before.split("\n").length;
    this.column = offset - lineStart + 1;
  }
}
