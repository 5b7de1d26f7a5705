/**
 * The one error of this folder: a CEL source that is refused at load.
 * It carries a 1-based position inside the source, so that the configuration loader
 * can add it to the position of the YAML scalar.
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
