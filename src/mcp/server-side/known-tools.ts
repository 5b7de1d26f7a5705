/**
 * The tools of one target that have a series of their own in the metrics. Names come from clients, so their number is
 * bounded, and names that never led to a result take at most half of the places: nobody can crowd out real tools by
 * making names up.
 */

const MAX_TOOLS = 100;
const MAX_UNPROVEN_TOOLS = 50;
/** Longer names share the series of those without a place. */
const MAX_TOOL_LABEL_CHARS = 128;

export const OTHER_TOOLS = "other";

export class KnownTools {
  /** Whether it ever succeeded. */
  readonly #tools = new Map<string, boolean>();
  #unproven = 0;

  /** What stands for the tool in a label. */
  label(tool: string, succeeded: boolean): string {
    const isProven = this.#tools.get(tool);
    if (isProven === true || (isProven === false && !succeeded)) return tool;
    if (isProven === undefined && !this.#hasPlace(tool, succeeded)) return OTHER_TOOLS;
    if (isProven === false) this.#unproven -= 1;
    if (!succeeded) this.#unproven += 1;
    this.#tools.set(tool, succeeded);
    return tool;
  }

  #hasPlace(tool: string, succeeded: boolean): boolean {
    if (tool.length > MAX_TOOL_LABEL_CHARS || this.#tools.size >= MAX_TOOLS) return false;
    return succeeded || this.#unproven < MAX_UNPROVEN_TOOLS;
  }
}
