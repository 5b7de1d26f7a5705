/**
 * Filters recent requests by a CEL expression, which the gateway evaluates. Results are cached.
 */
import { signal } from "@preact/signals";
import { postJson } from "./api.ts";

const MAX_PER_CALL = 200;

export const verdicts = signal<ReadonlyMap<string, boolean>>(new Map());
export const filterError = signal<string | undefined>(undefined);

let expressionNow = "";
let busy = false;

/** Evaluates the requests that have no result yet. */
export async function judge(expression: string, ids: readonly string[]): Promise<void> {
  if (expression !== expressionNow) {
    expressionNow = expression;
    verdicts.value = new Map();
    filterError.value = undefined;
  }
  if (expression === "" || busy || filterError.value !== undefined) return;
  const unknown = ids.filter((id) => !verdicts.value.has(id)).slice(0, MAX_PER_CALL);
  if (unknown.length === 0) return;
  busy = true;
  try {
    const { matching, error } = await postJson<{ matching: string[]; error?: string }>("matching", {
      expression,
      ids: unknown,
    });
    if (expression !== expressionNow) return;
    filterError.value = error;
    const next = new Map(verdicts.value);
    for (const id of unknown) next.set(id, matching.includes(id));
    verdicts.value = next;
  } catch (problem) {
    filterError.value = (problem as Error).message;
  } finally {
    busy = false;
  }
}
