/**
 * Shows the table of requests. A click or Enter opens a row.
 */
import { useRef } from "preact/hooks";
import { durationText, wholeText } from "../../../../src/base/format.ts";
import type { RequestRow } from "../../data/requests.ts";
import { navigate, page, pageHref, withParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { levelOfRequest, Status } from "../../parts/status.tsx";
import { ClockTime } from "../../parts/time.tsx";
import { useWindowed } from "../../parts/windowed.ts";

/** The height is in pixels and must match the style sheet. */
const ROW_HEIGHT = 28;

export function RequestTable({ rows, selected = "" }: { rows: readonly RequestRow[]; selected?: string }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const { from, to, before, after } = useWindowed(rows.length, ROW_HEIGHT, body);
  const shown = rows.slice(from, to);
  return (
    <table class="requests" aria-rowcount={rows.length + 1}>
      <thead>
        <tr>
          <th scope="col">Started</th>
          <th scope="col">Request</th>
          <th scope="col">Route</th>
          <th scope="col">Status</th>
          <th scope="col">Answered by</th>
          <th scope="col">Subject</th>
          <th scope="col" class="number">
            Duration
          </th>
          <th scope="col" class="number">
            Tokens
          </th>
        </tr>
      </thead>
      <tbody ref={body}>
        {before > 0 ? <Gap height={before} /> : null}
        {shown.map((row) => (
          <Row key={`${row.seq} ${row.time}`} row={row} isSelected={row.id === selected} />
        ))}
        {after > 0 ? <Gap height={after} /> : null}
      </tbody>
    </table>
  );
}

function Gap({ height }: { height: number }) {
  return (
    <tr class="gap">
      <td colSpan={8} style={{ height: `${height}px` }} />
    </tr>
  );
}

function Row({ row, isSelected }: { row: RequestRow; isSelected: boolean }) {
  const href = page.value === "requests" ? withParams({ id: row.id, event: "" }) : pageHref("requests", { id: row.id });
  const open = (): void => navigate(href);
  return (
    <tr
      class={isSelected ? "link selected" : "link"}
      onClick={(event) => {
        if (!(event.target as Element).closest("a")) open();
      }}
    >
      <td class="mono muted">
        <ClockTime at={Date.parse(row.time)} />
      </td>
      <td class="mono" title={visible(row.what)}>
        <a href={href} aria-current={isSelected ? "true" : undefined}>
          {visible(row.what)}
        </a>
      </td>
      <td class="mono">{row.route === null ? <span class="muted">none</span> : visible(row.route)}</td>
      <td>
        <Status level={levelOfRequest(row)}>{statusText(row)}</Status>
      </td>
      <td title={row.failure?.message}>{answeredBy(row)}</td>
      <td class="mono">{visible(row.subject ?? "")}</td>
      <td class="number">{durationText(row.durationMs)}</td>
      <td class="number">{tokens(row)}</td>
    </tr>
  );
}

/** An MCP call can fail inside a response with status 200. */
function statusText({ status, end, failure }: RequestRow): string {
  if (status === null) return end;
  return failure !== undefined && status < 400 ? `${status} ${failure.code}` : String(status);
}

/**
 * Returns the policy that rejected or answered the request, otherwise the backend, otherwise the error code or the
 * gateway.
 */
function answeredBy({ steps, answeredBy: by, backend, failure }: RequestRow): string {
  const last = steps.findLast(({ verdict }) => verdict !== "passed");
  if (last) return last.policy;
  if (by === "upstream") return visible(backend ?? "backend");
  return failure?.code ?? by ?? "";
}

function tokens({ llm }: RequestRow): string {
  if (llm?.inputTokens === undefined && llm?.outputTokens === undefined) return "";
  return wholeText((llm.inputTokens ?? 0) + (llm.outputTokens ?? 0));
}
