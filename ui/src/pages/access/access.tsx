/**
 * The Access page: which routes, tools, and models each known client may use, and by which rule.
 */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { wholeText } from "../../../../src/base/format.ts";
import { isReadOnly } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { pageHref, param, setParams } from "../../frame/router.ts";
import { download } from "../../parts/csv.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { Status } from "../../parts/status.tsx";
import { type AccessReason, type AccessReview, accessCsv, itemName, placeOf, selected } from "./access-view.ts";

interface Report {
  readonly review: AccessReview;
  readonly problems: readonly string[];
}

/** The table has at most this many cells, because all of them are drawn. */
const SHOWN_ROWS = 60;
const SHOWN_COLUMNS = 16;

/** A review takes CPU time, so its result is kept while the user visits other pages. */
const report = signal<Report | undefined>(undefined);
const problem = signal<string | undefined>(undefined);
const isRunning = signal(false);

async function run(claims: string): Promise<void> {
  isRunning.value = true;
  try {
    const extra = claims.trim() === "" ? {} : { principals: [{ name: "added client", claims: parseClaims(claims) }] };
    report.value = await postJson<Report>("debug/access", extra);
    problem.value = undefined;
  } catch (error) {
    problem.value = (error as Error).message;
  } finally {
    isRunning.value = false;
  }
}

function parseClaims(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error('Claims: enter JSON such as {"sub": "ada", "groups": ["ops"]}.');
  }
}

export function Access() {
  const [claims, setClaims] = useState("");
  const [isAdding, setIsAdding] = useState(false);
  const [badClaims, setBadClaims] = useState<string | undefined>(undefined);
  useEffect(() => {
    if (!isReadOnly.peek() && report.peek() === undefined && !isRunning.peek()) void run("");
  }, []);
  const doc = "Who may use which routes, tools, and models. The review sends no requests to backends.";
  if (isReadOnly.value)
    return (
      <>
        <PageHead title="Access" doc={doc} />
        <Empty title="Not available here">
          <p>Open the UI on the admin address to review access.</p>
        </Empty>
      </>
    );
  return (
    <>
      <PageHead title="Access" doc={doc}>
        {isRunning.value ? <Status level="busy">Reviewing</Status> : null}
        <button type="button" class="button" onClick={() => setIsAdding(true)}>
          Add a client
        </button>
        <button type="button" class="button" disabled={isRunning.value} onClick={() => void run(claims)}>
          Run again
        </button>
        {report.value === undefined ? null : (
          <button
            type="button"
            class="button"
            onClick={() => download("access.csv", accessCsv((report.value as Report).review))}
          >
            Download CSV
          </button>
        )}
      </PageHead>
      {problem.value === undefined ? null : <p class="note bad">{visible(problem.value)}</p>}
      {report.value === undefined ? (
        problem.value === undefined ? (
          <Skeleton lines={8} />
        ) : null
      ) : (
        <Review {...report.value} />
      )}
      {isAdding ? (
        <Dialog title="Add a client" onClose={() => setIsAdding(false)}>
          <form
            class="stack"
            onSubmit={(event) => {
              event.preventDefault();
              try {
                parseClaims(claims);
                setIsAdding(false);
                void run(claims);
              } catch (error) {
                setBadClaims((error as Error).message);
              }
            }}
          >
            <label class="field">
              <span>Claims of a token, as JSON</span>
              <textarea
                class="input mono"
                rows={4}
                placeholder={'{"sub": "ada", "groups": ["ops"]}'}
                value={claims}
                onInput={(event) => {
                  setClaims(event.currentTarget.value);
                  setBadClaims(undefined);
                }}
              />
            </label>
            {badClaims === undefined ? null : <p class="note bad">{badClaims}</p>}
            <div class="row end">
              <button type="button" class="button" onClick={() => setIsAdding(false)}>
                Cancel
              </button>
              <button type="submit" class="button primary" disabled={isRunning.value}>
                Review
              </button>
            </div>
          </form>
        </Dialog>
      ) : null}
    </>
  );
}

function Review({ review, problems }: Report) {
  const [limit, setLimit] = useState(SHOWN_ROWS);
  const [chosen, setChosen] = useState<{ readonly who: string; readonly item: string; readonly why: AccessReason }>();
  const found = selected(review, { item: param("item"), principal: param("who") });
  const columns = found.principals.slice(0, SHOWN_COLUMNS);
  return (
    <>
      {[...problems, ...review.notes].map((text) => (
        <p key={text} class="note warn">
          {visible(text)}
        </p>
      ))}
      <div class="row">
        <input
          class="input find-route"
          data-search
          aria-label="Filter items"
          placeholder="Filter routes, tools, models"
          value={param("item")}
          onInput={(event) => setParams({ item: event.currentTarget.value }, { replace: true })}
        />
        <input
          class="input find-route"
          aria-label="Filter clients"
          placeholder="Filter clients: a name, or team:research"
          value={param("who")}
          onInput={(event) => setParams({ who: event.currentTarget.value }, { replace: true })}
        />
        <span class="muted">
          {wholeText(found.rows.length)} {found.rows.length === 1 ? "item" : "items"},{" "}
          {wholeText(found.principals.length)} {found.principals.length === 1 ? "client" : "clients"}
          {found.principals.length > SHOWN_COLUMNS ? ` (the first ${SHOWN_COLUMNS} are shown)` : ""}
        </span>
      </div>
      {chosen === undefined ? null : <Reason {...chosen} onClose={() => setChosen(undefined)} />}
      <div class="panel access">
        <ScrollX>
          <table>
            <thead>
              <tr>
                <th scope="col">Item</th>
                <th scope="col">Route</th>
                {columns.map(({ name, kind }) => (
                  <th key={`${kind} ${name}`} scope="col" title={kind}>
                    {visible(name)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {found.rows.slice(0, limit).map(({ item, reasons }) => (
                <tr key={`${itemName(item)} ${item.listener} ${item.route}`}>
                  <th scope="row" class="mono">
                    {visible(itemName(item))}
                  </th>
                  <td class="mono muted">{visible(item.route)}</td>
                  {columns.map(({ name, kind }, i) => {
                    const why = reasons[i];
                    return (
                      <td key={`${kind} ${name}`}>
                        {why === undefined ? null : (
                          <button
                            type="button"
                            class="cell"
                            title={visible(why.text)}
                            onClick={() => setChosen({ who: name, item: itemName(item), why })}
                          >
                            <Status level={why.allowed ? "ok" : "idle"}>{why.allowed ? "yes" : "no"}</Status>
                          </button>
                        )}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </ScrollX>
      </div>
      {found.rows.length > limit ? (
        <button type="button" class="button quiet" onClick={() => setLimit(limit + SHOWN_ROWS)}>
          Show {Math.min(SHOWN_ROWS, found.rows.length - limit)} more
        </button>
      ) : null}
    </>
  );
}

function Reason(props: { who: string; item: string; why: AccessReason; onClose: () => void }) {
  const { who, item, why, onClose } = props;
  const place = placeOf(why.at);
  return (
    <Panel
      title={
        <>
          {visible(who)} {why.allowed ? "may use" : "may not use"} <span class="mono">{visible(item)}</span>
        </>
      }
      end={
        <button type="button" class="button quiet" data-close onClick={onClose}>
          Close
        </button>
      }
    >
      <p role="status">{visible(why.text)}</p>
      {place === undefined ? null : <a href={pageHref("config", place)}>Show in the configuration</a>}
    </Panel>
  );
}
