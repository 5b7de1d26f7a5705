/**
 * Rejects nesting that would exhaust the YAML parser's stack, before the parser sees it.
 */

export const MAX_DEPTH = 64;
export const TOO_DEEP = `nested deeper than ${MAX_DEPTH} levels`;

/**
 * A cheap look before the parser: brackets nested beyond the limit would make it recurse. Strings and comments
 * are not told apart, so the limit counts generously; indentation is bounded the same way.
 */
export function firstTooDeepLine(text: string): number | undefined {
  const limit = MAX_DEPTH * 4;
  let depth = 0;
  let line = 1;
  let dashes = 0;
  const indents: number[] = [];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 10) {
      line += 1;
      dashes = 0;
      let next = i + 1;
      while (text.charCodeAt(next) === 32) next += 1;
      const indent = next - i - 1;
      while ((indents.at(-1) ?? -1) >= indent) indents.pop();
      indents.push(indent);
      if (indents.length > limit) return line;
    } else if (code === 91 || code === 123) {
      depth += 1;
      if (depth > limit) return line;
    } else if (code === 93 || code === 125) depth = Math.max(0, depth - 1);
    else if (code === 45 && text.charCodeAt(i + 1) === 32) {
      dashes += 1;
      if (dashes > limit) return line;
    }
  }
  return undefined;
}
