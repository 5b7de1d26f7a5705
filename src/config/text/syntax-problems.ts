/**
 * Broken YAML as lines a person can act on: the first errors without their echo, a malformed placeholder by its own
 * name, and nothing quoted from the file, because what stands at the wrong place may be a secret.
 */
import type { YAMLError } from "yaml";
import { ConfigError, type Position } from "../../core/config-error.ts";

/** What follows the first syntax errors of a document is mostly their echo. */
const MAX_SYNTAX_PROBLEMS = 5;
export const MALFORMED = "malformed ${…}: use ${NAME} or ${NAME:-default}, and $${ for a literal ${";

export function syntaxProblems(
  errors: readonly YAMLError[],
  /** The text with marks in place of well-formed placeholders. */
  marked: string,
  at: (offset: number) => Position,
  tooDeep: string,
): ConfigError[] {
  const problems = errors
    .filter((error, index) => index === 0 || !isEcho(error))
    .slice(0, MAX_SYNTAX_PROBLEMS)
    .map((error) => {
      const [offset] = error.pos;
      const malformed = malformedBefore(marked, offset);
      return malformed === undefined
        ? new ConfigError(at(offset), "", yamlMessage(error.code, error.message, tooDeep))
        : new ConfigError(at(malformed), "", MALFORMED);
    });
  const lines = problems.map((problem) => problem.toLine());
  return problems.filter((_, index) => lines.indexOf(lines[index] as string) === index);
}

/** After the parser lost its way, every further token is one that it did not expect. */
function isEcho(error: YAMLError): boolean {
  if (error.code === "MULTILINE_IMPLICIT_KEY") return true;
  return error.code === "UNEXPECTED_TOKEN" && error.message.includes("token in YAML stream");
}

/** `{ port: ${} }` is a syntax error to YAML: what is left of `${` on the line up to it is the real one. */
function malformedBefore(marked: string, offset: number): number | undefined {
  const lineStart = marked.lastIndexOf("\n", offset - 1) + 1;
  const found = marked.slice(lineStart, offset + 2).indexOf("${");
  return found < 0 ? undefined : lineStart + found;
}

/** Without what the library quotes from the file: it may be a secret. */
function yamlMessage(code: string, message: string, tooDeep: string): string {
  if (code === "TAB_AS_INDENT") return "a tab is used for indentation: YAML needs spaces";
  if (code === "BLOCK_AS_IMPLICIT_KEY")
    return "the indentation is wrong here or in the next line (the keys of one object begin in the same column), or a value with a colon needs quotes";
  if (code === "MULTILINE_IMPLICIT_KEY") return "a colon is missing after a key, or the indentation is wrong";
  if (message.includes("call stack")) return tooDeep;
  const [line = message] = message.split("\n", 1);
  if (code === "TAG_RESOLVE_FAILED") return "unknown tag: quote values that begin with !";
  return line.replace(/(in YAML stream|includes extra characters|but found): .*$/, "$1");
}
