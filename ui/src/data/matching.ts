/**
 * Filters recent requests by a CEL expression, which the gateway evaluates. Results are cached.
 */
import { signal } from "@preact/signals";
import { type ApiError, postJson } from "./api.ts";

const MAX_PER_CALL = 200;

export interface CelFilter {
  readonly expression: string;
  /** The result by request ID: whether the request matches, or the reason why it cannot be evaluated. */
  readonly results: ReadonlyMap<string, boolean | string>;
  /** Set if the expression is not valid. The filter is not applied then. */
  readonly error?: string;
}

const NO_FILTER: CelFilter = { expression: "", results: new Map() };

/** Shows the results of the previous expression until the first ones of the next arrive, so that rows do not flicker. */
export const celFilter = signal<CelFilter>(NO_FILTER);

let wanted: { readonly expression: string; readonly ids: readonly string[] } = { expression: "", ids: [] };
let isBusy = false;

/** Evaluates the requests that have no result yet. */
export async function evaluateFilter(expression: string, ids: readonly string[]): Promise<void> {
  wanted = { expression, ids };
  if (expression === "") celFilter.value = NO_FILTER;
  if (isBusy) return;
  isBusy = true;
  try {
    for (let next = nextIds(); next.length > 0; next = nextIds()) if (!(await evaluateSome(next))) break;
  } finally {
    isBusy = false;
  }
}

function nextIds(): readonly string[] {
  const { expression, ids } = wanted;
  const { results, error } = currentFilter();
  if (expression === "" || error !== undefined) return [];
  return ids.filter((id) => !results.has(id)).slice(0, MAX_PER_CALL);
}

function currentFilter(): CelFilter {
  const shown = celFilter.peek();
  return shown.expression === wanted.expression ? shown : { ...NO_FILTER, expression: wanted.expression };
}

/** Resolves with false if the gateway does not respond. The next poll tries again. */
async function evaluateSome(ids: readonly string[]): Promise<boolean> {
  const { expression } = wanted;
  let found: { matching: string[]; errors: [string, string][]; error?: string };
  try {
    found = await postJson("matching", { expression, ids });
  } catch (problem) {
    if ((problem as ApiError).status === 0) return false;
    found = { matching: [], errors: [], error: (problem as Error).message };
  }
  if (expression !== wanted.expression) return true;
  const results = new Map(currentFilter().results);
  for (const id of ids) results.set(id, false);
  for (const id of found.matching) results.set(id, true);
  for (const [id, message] of found.errors) results.set(id, message);
  celFilter.value = { expression, results, ...(found.error === undefined ? {} : { error: found.error }) };
  return true;
}
