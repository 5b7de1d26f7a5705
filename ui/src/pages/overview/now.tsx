/**
 * Shows current problems, the last reload, and the process.
 */
import { useState } from "preact/hooks";
import { ageText, bytesText, wholeText } from "../../../../src/base/format.ts";
import { type Problem, problemsOf } from "../../../../src/cli/views/problems.ts";
import { ready } from "../../data/about.ts";
import { getJson } from "../../data/api.ts";
import type { Dump } from "../../data/dump.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { tasks, tasksOfKind } from "../../data/tasks.ts";
import { errors } from "../../data/traffic.ts";
import { pageHref } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";

const SHOWN_PROBLEMS = 5;
const INTERVAL_MS = 5_000;

const limits = createPoll(() => getJson<{ readonly rules: unknown }>("debug/limits"), INTERVAL_MS);

export function Problems({ dump }: { dump: Dump }) {
  const wrong = problemsOf({
    readiness: ready.value.value?.trim() ?? "ready",
    dump: { ...dump },
    tasks: tasks.value.value?.tasks.map((task) => ({ ...task })) ?? [],
    rules: (usePoll(limits)?.rules ?? []) as readonly Readonly<Record<string, unknown>>[],
    errors: errors.value.value ?? { rows: [] },
  });
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? wrong : wrong.slice(0, SHOWN_PROBLEMS);
  return (
    <section class={`problems ${wrong[0]?.level ?? "ok"}`} aria-label="Problems">
      <h2>{wrong.length === 0 ? "Problems" : `Problems (${wrong.length})`}</h2>
      {wrong.length === 0 ? <Status level="ok">No problems.</Status> : null}
      <ul>
        {shown.map((problem) => {
          const { level, text } = problem;
          const href = hrefOf(problem);
          return (
            <li key={text}>
              <Status level={level}>
                <span class="wrap text">{href === undefined ? visible(text) : <a href={href}>{visible(text)}</a>}</span>
              </Status>
            </li>
          );
        })}
      </ul>
      {wrong.length > SHOWN_PROBLEMS ? (
        <button type="button" class="button quiet" onClick={() => setIsWhole(!isWhole)}>
          {isWhole ? "Show fewer" : `Show ${wrong.length - SHOWN_PROBLEMS} more`}
        </button>
      ) : null}
    </section>
  );
}

export function Now({ dump }: { dump: Dump }) {
  return (
    <div class="columns">
      <LastReload dump={dump} />
      <Living />
    </div>
  );
}

function LastReload({ dump: { reload } }: { dump: Dump }) {
  return (
    <Panel title="Configuration" end={<a href={pageHref("config")}>Open</a>}>
      <dl class="attributes">
        <dt>loaded</dt>
        <dd>
          <Ago at={reload.loadedAt} />
        </dd>
        <dt>generation</dt>
        <dd>{reload.generation}</dd>
        <dt>files</dt>
        <dd class="mono" title={reload.sources.map(visible).join(", ")}>
          {reload.sources.map(fileName).join(", ")}
        </dd>
        <dt>last reload</dt>
        <dd>
          {reload.refused ? (
            <Status level="warn">
              rejected <Ago at={reload.refused.at} />
            </Status>
          ) : (
            <Status level="ok">loaded</Status>
          )}
        </dd>
      </dl>
    </Panel>
  );
}

function Living() {
  const report = tasks.value.value;
  if (!report) return <Panel title="Process">…</Panel>;
  const sessions = tasksOfKind(report.tasks, ({ kind }) => kind.includes("session")).length;
  const children = tasksOfKind(report.tasks, ({ detail }) => typeof detail?.children === "number").reduce(
    (sum, { detail }) => sum + Number(detail?.children),
    0,
  );
  return (
    <Panel title="Process" end={<a href={pageHref("runtime")}>Open</a>}>
      <dl class="attributes">
        <dt>uptime</dt>
        <dd>{ageText(report.process.ageMs)}</dd>
        <dt>memory</dt>
        <dd>{bytesText(report.process.rssBytes)}</dd>
        <dt>requests in flight</dt>
        <dd>{wholeText(report.requestsInFlight)}</dd>
        <dt>MCP sessions</dt>
        <dd>{sessions}</dd>
        <dt>child processes</dt>
        <dd>{children}</dd>
      </dl>
    </Panel>
  );
}

function hrefOf({ area, route = "", code = "" }: Problem): string | undefined {
  if (area === "process") return undefined;
  if (area !== "requests") return pageHref(area);
  return pageHref("requests", {
    ...(route === "" ? {} : { route }),
    ...(/^\d+$/.test(code) ? { status: `${code[0]}xx` } : { text: code }),
  });
}
