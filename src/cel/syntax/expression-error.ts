/**
 * The error for a CEL source that is rejected at load. Its 1-based position is relative to the source, and the
 * configuration loader adds the position of the YAML scalar.
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
