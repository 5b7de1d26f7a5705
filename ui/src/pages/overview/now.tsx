/**
 * Shows current problems, the last reload, and the process.
 */
import { useState } from "preact/hooks";
import { ready } from "../../data/about.ts";
import { type Dump, leavesOf } from "../../data/dump.ts";
import { serverState } from "../../data/mcp-targets.ts";
import { tasks, tasksOfKind } from "../../data/tasks.ts";
import { errors, range } from "../../data/traffic.ts";
import { pageHref } from "../../frame/router.ts";
import { ageText, bytesText, fileName, visible, wholeText } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { type Level, Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";

interface Sentence {
  readonly level: Level;
  readonly text: string;
  readonly href?: string;
}

const SHOWN_PROBLEMS = 5;

export function Problems({ dump }: { dump: Dump }) {
  const wrong = sentencesOf(dump);
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? wrong : wrong.slice(0, SHOWN_PROBLEMS);
  return (
    <section class={`problems ${wrong[0]?.level ?? "ok"}`} aria-label="Problems">
      <h2>{wrong.length === 0 ? "Problems" : `Problems (${wrong.length})`}</h2>
      {wrong.length === 0 ? <Status level="ok">No problems.</Status> : null}
      <ul>
        {shown.map(({ level, text, href }) => (
          <li key={text}>
            <Status level={level}>
              <span class="wrap text">{href === undefined ? visible(text) : <a href={href}>{visible(text)}</a>}</span>
            </Status>
          </li>
        ))}
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

/** Returns the most urgent problems first. */
function sentencesOf(dump: Dump): Sentence[] {
  const pending = ready.value.value?.trim();
  const config = pageHref("config");
  return [
    ...(pending === undefined || pending === "ready" ? [] : [{ level: "bad" as const, text: pending }]),
    ...(dump.reload.refused?.problems ?? []).map((text) => ({
      level: "warn" as const,
      text: `Reload rejected: ${text}`,
      href: config,
    })),
    ...dump.backends.flatMap((backend) =>
      leavesOf(backend)
        .filter(
          ({ kind, name, state }) =>
            state === "bad" || (kind === "target" && serverState(backend.name, name).state === "failing"),
        )
        .map(({ kind, name, detail }) => {
          if (kind === "canary")
            return { level: "bad" as const, text: `Canary ${backend.name} ${detail}`, href: pageHref("config") };
          const { lastError } = serverState(backend.name, name);
          const text = `${name} (${backend.name}) failed${lastError === undefined ? "" : `: ${lastError}`}`;
          return { level: "bad" as const, text, href: pageHref(backend.type === "ai" ? "llm" : "mcp") };
        }),
    ),
    ...errorSentences(),
    ...dump.reload.needsRestart.map((field) => ({
      level: "warn" as const,
      text: `\`${field}\` changed: restart the gateway to apply it`,
      href: config,
    })),
    ...dump.reload.warnings.map((text) => ({ level: "warn" as const, text, href: config })),
  ];
}

/** Returns failed requests before rejected ones, and the most frequent first. */
function errorSentences(): Sentence[] {
  const rows = errors.value.value?.rows ?? [];
  const suffix = range().seconds > 86_400 ? " in the last 24 h" : "";
  return (["failed", "rejected"] as const).flatMap((result) =>
    rows
      .filter(({ name }) => name[1] === result)
      .map(({ name: [route = "", , code = ""], requests }) => ({
        level: result === "failed" ? ("bad" as const) : ("warn" as const),
        text: `${countText(requests, route)} ${codeText(result, code)}${suffix}`,
        href: pageHref("requests", {
          ...(route === "" ? {} : { route }),
          ...(/^\d+$/.test(code) ? { status: `${code[0]}xx` } : { text: code }),
        }),
      })),
  );
}

function countText(count: number, route: string): string {
  return `${wholeText(count)} ${count === 1 ? "request" : "requests"} ${route === "" ? "without a route" : `to ${route}`}`;
}

function codeText(result: string, code: string): string {
  if (code === "rate_limited") return "rate-limited";
  if (/^\d+$/.test(code)) return `${result} with status ${code}`;
  return `${result}: ${code.replaceAll("_", " ")}`;
}
