/**
 * Reports a problem in a CEL source, with a 1-based position relative to the source.
 */
export class ExpressionError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(source: string, offset: number, problem: string) {
    const before = source.slice(0, offset);
    const lineStart = before.lastIndexOf("\n") + 1;
    const line = before.split("\n").length;
    const column = offset - lineStart + 1;
    super(`cel: ${problem}`);
    this.name = "ExpressionError";
    this.line = line;
    this.column = column;
  }

  /** The message with the place, because the configuration only has the position of the whole expression. */
  get located(): string {
    if (this.line > 1) return `${this.message} (line ${this.line}, column ${this.column} of the expression)`;
    return this.column === 1 ? this.message : `${this.message} (column ${this.column} of the expression)`;
  }
}
