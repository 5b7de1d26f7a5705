/**
 * Shows the validation result of an edited configuration: problems, warnings, and changes.
 */
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";

export interface Problem {
  readonly file?: string | undefined;
  readonly line?: number | undefined;
  readonly column?: number | undefined;
  readonly message: string;
}

export interface Judgement {
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  readonly changes: readonly {
    readonly what: string;
    readonly name: string;
    readonly change: "added" | "removed" | "changed";
    readonly parts: readonly string[];
  }[];
}

export function JudgementView({ title, judged }: { title: string; judged: Judgement }) {
  const { problems, warnings, changes } = judged;
  return (
    <Panel
      title={title}
      end={
        <span role="status">
          {problems.length === 0 ? (
            <Status level="ok">valid</Status>
          ) : (
            <Status level="bad">{problems.length === 1 ? "1 problem" : `${problems.length} problems`}</Status>
          )}
        </span>
      }
    >
      <ul class="stack">
        {[
          ...problems.map((one) => ({ ...one, level: "bad" as const })),
          ...warnings.map((one) => ({ ...one, level: "warn" as const })),
        ].map((one) => (
          <li key={`${one.line} ${one.message}`} class={`note ${one.level}`}>
            {one.line === undefined ? null : (
              <a
                href={pageHref("config", {
                  ...(one.file === undefined ? {} : { file: one.file }),
                  line: String(one.line),
                })}
              >
                line {one.line}
                {one.column === undefined ? "" : `, column ${one.column}`}:{" "}
              </a>
            )}
            {visible(one.message)}
          </li>
        ))}
        {problems.length === 0 && changes.length === 0 ? <li class="muted">No changes.</li> : null}
        {changes.map(({ what, name, change, parts }) => (
          <li key={`${what} ${name} ${change}`}>
            <span class="mono">{change === "added" ? "+" : change === "removed" ? "−" : "±"}</span> {what}{" "}
            <code>{visible(name)}</code> {change}
            {parts.length === 0 ? "" : `: ${parts.join(", ")}`}
          </li>
        ))}
      </ul>
    </Panel>
  );
}
