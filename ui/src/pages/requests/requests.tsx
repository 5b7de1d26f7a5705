/**
 * Implements the Requests page. Its filters and the selected request are part of the URL.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { resultOf } from "../../../../src/record/trace/record.ts";
import { isReadOnly } from "../../data/about.ts";
import { dump } from "../../data/dump.ts";
import { exampleCommand } from "../../data/example-command.ts";
import { celFilter, evaluateFilter } from "../../data/matching.ts";
import { usePoll } from "../../data/poll.ts";
import {
  hasOlder,
  inFlight,
  isPaused,
  isReadingOlder,
  type RequestRow,
  readOlder,
  requestList,
} from "../../data/requests.ts";
import { capture } from "../../data/trace.ts";
import { pageHref, param, setParams, url } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { CapturePanel, TraceNextForm } from "./capture-panel.tsx";
import { CelFilterNote } from "./cel-filter-note.tsx";
import { RequestDetailPanel } from "./request-detail.tsx";
import { RequestTable } from "./request-table.tsx";

/** An expression is evaluated when the user has not typed for this time. */
const PAUSE_MS = 250;
const STATUSES = ["2xx", "3xx", "4xx", "5xx", "failed"] as const;

export function Requests() {
  const rows = usePoll(requestList);
  const typed = isReadOnly.value ? "" : param("cel").trim();
  const cel = usePaused(typed);
  const [linked] = useState(typed);
  const id = param("id");
  const filtered = useMemo(() => filterRows(rows ?? []), [rows, url.value]);
  useEffect(() => {
    void requestList.refresh();
  }, []);
  useEffect(() => {
    // Only the newest requests have attributes.
    void evaluateFilter(cel, rows?.flatMap((row) => (row.isShort ? [] : [row.id])) ?? []);
  }, [cel, rows]);
  const { expression, results, error } = celFilter.value;
  const isFiltered = cel !== "" && expression !== "" && error === undefined;
  const shown = isFiltered ? filtered.filter((row) => results.get(row.id) === true) : filtered;
  // A page that is opened with a filter does not show all rows first.
  const isPending = rows === undefined || (cel !== "" && cel === linked && expression === "" && rows.length > 0);
  const isOpen = id !== "" || capture.value !== undefined;
  return (
    <>
      <PageHead
        title="Requests"
        doc={
          inFlight.value > 0 ? `${inFlight.value} in flight` : "Newest first, live. The gateway remembers up to 10,000."
        }
      >
        {isReadOnly.value ? null : <TraceNextForm />}
        <button
          type="button"
          class="button"
          aria-pressed={isPaused.value}
          onClick={() => {
            isPaused.value = !isPaused.value;
          }}
        >
          {isPaused.value ? "Resume" : "Pause"}
        </button>
      </PageHead>
      <Filters />
      {cel === "" ? null : <CelFilterNote rows={filtered} />}
      <div class={isOpen ? "split open" : "split"}>
        <Panel title={countText(shown.length, isPending ? undefined : rows.length)} flush>
          {isPending ? (
            <Skeleton />
          ) : rows.length === 0 ? (
            <NoRequests />
          ) : (
            <>
              <div class="rows-frame">
                <RequestTable rows={shown} selected={id} />
                {shown.length === 0 ? <NoMatch /> : null}
              </div>
              {hasOlder.value && rows.length >= 500 ? (
                <button type="button" class="button quiet" disabled={isReadingOlder.value} onClick={readOlder}>
                  {isReadingOlder.value ? "Reading…" : "Read older requests"}
                </button>
              ) : null}
            </>
          )}
        </Panel>
        {isOpen ? (
          <div class="stack">
            {capture.value === undefined ? null : <CapturePanel capture={capture.value} />}
            {id === "" ? null : <RequestDetailPanel id={id} key={id} />}
          </div>
        ) : null}
      </div>
    </>
  );
}

function Filters() {
  const routes = dump.value.value?.routes;
  const names = useMemo(
    () =>
      routes?.map(({ name }) => (
        <option key={name} value={name}>
          {visible(name)}
        </option>
      )),
    [routes],
  );
  const set = (name: string) => (event: { currentTarget: { value: string } }) =>
    setParams({ [name]: event.currentTarget.value }, { replace: true });
  const chips = ["listener", "backend", "subject", "session", "tool"].filter((name) => param(name) !== "");
  return (
    <search class="filters">
      <input
        class="input"
        data-search
        aria-label="Search"
        placeholder="Search: path, tool, id, error"
        value={param("text")}
        onInput={set("text")}
      />
      <select class="input" aria-label="Route" value={param("route")} onChange={set("route")}>
        <option value="">all routes</option>
        {names}
      </select>
      <div class="chips">
        {STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            class={param("status") === status ? "chip on" : "chip"}
            aria-pressed={param("status") === status}
            onClick={() => setParams({ status: param("status") === status ? "" : status }, { replace: true })}
          >
            {status}
          </button>
        ))}
        {chips.map((name) => (
          <button
            key={name}
            type="button"
            class="chip on"
            aria-label={`Remove filter ${name}`}
            onClick={() => setParams({ [name]: "" })}
          >
            {name} {visible(param(name))} ×
          </button>
        ))}
      </div>
      {isReadOnly.value ? null : (
        <input
          class="input mono"
          aria-label="CEL filter"
          placeholder={'CEL, for example request.method == "POST"'}
          value={param("cel")}
          onInput={set("cel")}
          spellcheck={false}
        />
      )}
    </search>
  );
}

function usePaused(text: string): string {
  const [paused, setPaused] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setPaused(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return text === "" ? "" : paused;
}

function filterRows(rows: readonly RequestRow[]): RequestRow[] {
  const text = param("text").toLowerCase();
  const status = param("status");
  const exact = (["listener", "route", "backend", "subject"] as const)
    .map((name) => ({ name, value: param(name) }))
    .filter(({ value }) => value !== "");
  const session = param("session");
  const tool = param("tool");
  return rows.filter(
    (row) =>
      (session === "" || row.mcp?.session === session) &&
      (tool === "" || `${row.mcp?.target}/${row.mcp?.name}` === tool) &&
      exact.every(({ name, value }) => row[name] === value) &&
      (status === "" || hasStatus(row, status)) &&
      (text === "" || searchText(row).includes(text)),
  );
}

function hasStatus(row: RequestRow, status: string): boolean {
  if (status === "failed") return resultOf(row) !== "ok";
  return row.status !== null && String(row.status)[0] === status[0];
}

/** Rows never change, and up to 10,000 of them are searched at each key press, so their search strings are cached. */
const searchTexts = new WeakMap<RequestRow, string>();

function searchText(row: RequestRow): string {
  const known = searchTexts.get(row);
  if (known !== undefined) return known;
  const { what, path, id, subject, route, failure, llm, mcp } = row;
  const text = [
    what,
    path,
    id,
    subject,
    route,
    failure?.code,
    failure?.message,
    failure?.detail,
    llm?.model,
    mcp?.target,
  ]
    .join(" ")
    .toLowerCase();
  searchTexts.set(row, text);
  return text;
}

function countText(shown: number, all: number | undefined): string {
  if (all === undefined) return "Requests";
  const noun = all === 1 ? "request" : "requests";
  return shown === all ? `${all} ${noun}` : `${shown} of ${all} ${noun}`;
}

function NoMatch() {
  return (
    <p class="empty">
      <span>No request matches the filters.</span>
      <a href={pageHref("requests")}>Remove all filters</a>
    </p>
  );
}

function NoRequests() {
  const command = exampleCommand(dump.value.value);
  return (
    <Empty title="No requests yet" {...(command === undefined ? {} : { yaml: command })}>
      <p>Completed requests appear here, with the source of the response and the reason. Send one:</p>
    </Empty>
  );
}
