/**
 * Shows the details of a node in the diagram: its policies, its recent requests, and its lines in the configuration
 * file.
 */
import { isReadOnly } from "../../data/about.ts";
import { canaryOf } from "../../data/canary.ts";
import { configText, placeOf } from "../../data/config-text.ts";
import type { Dump } from "../../data/dump.ts";
import { type PolicyScope, scopesOf } from "../../data/policy-scopes.ts";
import { usePoll } from "../../data/poll.ts";
import { type RequestRow, requestList } from "../../data/requests.ts";
import { type Scope, trafficOf } from "../../data/traffic.ts";
import { pageHref, setParams } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { CHARTS, type ChartName, TrafficChart } from "../../parts/traffic-chart.tsx";
import { RequestTable } from "../requests/request-table.tsx";

const SHOWN_REQUESTS = 8;

export function NodePanel({ dump, id }: { dump: Dump; id: string }) {
  const kind = id.slice(0, id.indexOf(":"));
  const name = id.slice(id.indexOf(":") + 1);
  const scopes = scopesOf(dump, kind, name);
  const rows = (requestList.value.value ?? []).filter((row) => row[kind as "listener" | "route" | "backend"] === name);
  return (
    <Panel
      title={
        <>
          {kind} <span class="mono">{visible(name)}</span>
        </>
      }
      end={
        <button type="button" class="button quiet" data-close onClick={() => setParams({ node: "" })}>
          Close
        </button>
      }
    >
      <NodeCharts kind={kind} name={name} />
      <div class="columns">
        <div class="stack">
          <Canaries dump={dump} kind={kind} name={name} />
          <div class="row between">
            <h3>Policies, in execution order</h3>
            <AddPolicy kind={kind} name={name} />
          </div>
          {scopes.every(({ policies }) => Object.keys(policies).length === 0) ? <p class="muted">None.</p> : null}
          {scopes.map((scope) => (
            <PolicyList key={scope.title} {...scope} />
          ))}
        </div>
        {isReadOnly.value ? null : <Written name={`${kind} ${name}`} />}
      </div>
      <LastRequests rows={rows} kind={kind} name={name} />
    </Panel>
  );
}

function NodeCharts({ kind, name }: { kind: string; name: string }) {
  const scope: Scope = { [kind]: name };
  const total = usePoll(trafficOf(scope))?.total;
  const shown: readonly ChartName[] = ["requests", "latency", ...((total?.tokens ?? 0) > 0 ? ["tokens" as const] : [])];
  return (
    <div class="charts">
      {shown.map((chart) => (
        <div key={chart}>
          <h3>{CHARTS[chart]}</h3>
          <TrafficChart name={chart} scope={scope} height={140} />
        </div>
      ))}
    </div>
  );
}

function Canaries({ dump, kind, name }: { dump: Dump; kind: string; name: string }) {
  const names =
    kind === "route" ? dump.routes.find((one) => one.name === name)?.backends.map((one) => one.name) : [name];
  const trials = dump.backends.flatMap((backend) => {
    const trial = kind !== "listener" && names?.includes(backend.name) ? canaryOf(backend) : undefined;
    return trial ? [{ name: backend.name, ...trial }] : [];
  });
  if (trials.length === 0) return null;
  return (
    <>
      <h3>Canary</h3>
      {trials.map((trial) => (
        <p key={trial.name}>
          <Status level={trial.isWithdrawn ? "bad" : "ok"}>
            <span class="mono">{visible(trial.name)}</span>
          </Status>{" "}
          {visible(trial.text)}
        </p>
      ))}
    </>
  );
}

function PolicyList({ title, policies }: PolicyScope) {
  return (
    <>
      {Object.entries(policies).map(([kind, config]) => (
        <details key={kind}>
          <summary>
            <span class="mono">{kind}</span> <span class="muted small">{visible(title)}</span>
          </summary>
          <Json value={config} />
        </details>
      ))}
    </>
  );
}

/** Links to the forms on Config, for what is written in a file. */
function AddPolicy({ kind, name }: { kind: string; name: string }) {
  const place = placeOf(configText.value.value?.files, `${kind} ${name}`);
  if (isReadOnly.value || kind === "backend" || place === undefined) return null;
  const target = `${kind} ${name}`;
  return (
    <span class="small">
      Add <a href={pageHref("config", { add: "rateLimit", target })}>rate limit</a>
      {" · "}
      <a href={pageHref("config", { add: "apiKey", target })}>API keys</a>
      {" · "}
      <a href={pageHref("config", { add: "authorization", target })}>rule</a>
    </span>
  );
}

function Written({ name }: { name: string }) {
  const place = placeOf(usePoll(configText)?.files, name);
  if (!place) return null;
  return (
    <div class="stack">
      <h3>
        <a href={pageHref("config", { file: place.file, line: String(place.line) })}>
          {fileName(place.file)}:{place.line}
        </a>
      </h3>
      <pre class="code wrapped">{visible(place.text).replaceAll("\u240a", "\n")}</pre>
    </div>
  );
}

function LastRequests({ rows, kind, name }: { rows: readonly RequestRow[]; kind: string; name: string }) {
  return (
    <div class="stack">
      <h3>
        Recent requests · <a href={pageHref("requests", { [kind]: name })}>View all</a>
      </h3>
      {rows.length === 0 ? (
        <p class="muted">None in the last 500 requests.</p>
      ) : (
        <RequestTable rows={rows.slice(0, SHOWN_REQUESTS)} />
      )}
    </div>
  );
}
