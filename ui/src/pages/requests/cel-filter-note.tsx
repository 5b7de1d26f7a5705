/**
 * Explains which requests the CEL filter could not evaluate, and why.
 */

import { wholeText } from "../../../../src/base/format.ts";
import { celFilter } from "../../data/matching.ts";
import type { RequestRow } from "../../data/requests.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";

/** Messages can contain values of requests, so there can be many. */
const MAX_REASONS = 3;

export function CelFilterNote({ rows }: { rows: readonly RequestRow[] }) {
  const { expression, results, error } = celFilter.value;
  if (error !== undefined)
    return (
      <p class="note warn" role="status">
        The CEL filter is not applied: {visible(error)}
      </p>
    );
  const reasons = new Map<string, string[]>();
  let older = 0;
  let matches = 0;
  for (const { id, isShort } of rows) {
    const result = results.get(id);
    if (isShort) older += 1;
    else if (typeof result === "string") {
      const ids = reasons.get(result);
      if (ids === undefined) reasons.set(result, [id]);
      else ids.push(id);
    } else if (result === true) matches += 1;
  }
  const failed = [...reasons.values()].flat();
  if (expression === "" || (failed.length === 0 && older === 0)) return null;
  return (
    <div class={failed.length > 0 && matches === 0 ? "note warn" : "note"} role="status">
      {failed.length === 0 ? null : (
        <p>
          {failed.length === 1
            ? "1 request is hidden because the expression fails: "
            : `${wholeText(failed.length)} requests are hidden because the expression fails: `}
          {[...reasons].slice(0, MAX_REASONS).map(([reason, ids], i) => (
            <span key={reason}>
              {i === 0 ? "" : ", "}
              <code>{visible(reason)}</code>
              {reasons.size > 1 ? ` (${wholeText(ids.length)})` : ""}
            </span>
          ))}
          {reasons.size > MAX_REASONS ? ", …" : ""}.{" "}
          <a href={pageHref("cel", { expression, request: failed[0] ?? "" })}>Evaluate one part by part</a>. Not every
          request has every attribute: <code>has(jwt.sub)</code> tests for one.
        </p>
      )}
      {older === 0 ? null : (
        <p>
          {older === 1 ? "1 older request is" : `${wholeText(older)} older requests are`} hidden: CEL filters need
          attributes, which only the newest requests have.
        </p>
      )}
    </div>
  );
}
