/**
 * Measures texts in terminal columns. `table.ts` loads it on demand, because the segmenter takes 70 ms of CPU time to
 * start.
 */
import stringWidth from "string-width";

const graphemes = new Intl.Segmenter();

export { stringWidth };

export function graphemesOf(text: string): string[] {
  return Array.from(graphemes.segment(text), ({ segment }) => segment);
}
