/**
 * Shows tools that differ from the lock file (`toolsLock`) and are withheld from clients, with a button to accept
 * them. The gateway accepts only the displayed definition and rejects a tool that has changed since.
 */
import { useState } from "preact/hooks";
import { mayOperate } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { type DumpBackend, dump, listOf, textOf } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { tasks, tasksOfKind } from "../../data/tasks.ts";
import { Fold } from "../../parts/fold.tsx";
import { fileName, visible } from "../../parts/format.ts";
import { Panel, Skeleton } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { ToolChanges } from "./tool-changes.tsx";
import type { ToolChange, ToolReview } from "./tool-review.ts";

/** Only listed tools can be accepted, so more are listed after these are accepted. */
const LISTED = 100;
const NAMED = 20;

export function ToolLocks({ backends }: { backends: readonly DumpBackend[] }) {
  usePoll(tasks);
  return (
    <>
      {backends
        .filter(({ toolsLock }) => typeof toolsLock === "string")
        .map((backend) => (
          <ToolLock key={backend.name} name={backend.name} file={textOf(backend.toolsLock)} />
        ))}
    </>
  );
}

function ToolLock({ name, file }: { name: string; file: string }) {
  const [review, setReview] = useState<ToolReview | "asking" | undefined>(undefined);
  const [said, setSaid] = useState<{ text: string; isBad: boolean } | undefined>(undefined);
  const compare = async (): Promise<void> => {
    setReview("asking");
    try {
      setReview(await postJson<ToolReview>("debug/mcp/lock", { backend: name }));
    } catch (error) {
      setReview(undefined);
      setSaid({ text: (error as Error).message, isBad: true });
    }
  };
  const accept = async (changes: readonly ToolChange[]): Promise<void> => {
    try {
      await postJson("debug/mcp/lock", {
        backend: name,
        accept: changes.map(({ target, tool, hash }) => ({ target, tool, hash })),
        acceptSuspicious: changes.some(({ suspicious }) => suspicious.length > 0),
      });
      setSaid({ text: `Accepted ${toolsText(changes.length)}. The gateway applies the file now.`, isBad: false });
      setReview((shown) =>
        shown === undefined || shown === "asking"
          ? shown
          : { ...shown, changes: shown.changes.filter((change) => !changes.includes(change)) },
      );
      await Promise.all([tasks.refresh(), dump.refresh()]);
    } catch (error) {
      setSaid({ text: (error as Error).message, isBad: true });
      await compare();
    }
  };
  return (
    <Panel
      title="Tool lock"
      end={
        <span class="muted mono" title={visible(file)}>
          {fileName(file)} · {visible(name)}
        </span>
      }
    >
      <div class="stack tool-lock">
        {review === undefined || review === "asking" ? <Withheld backend={name} /> : null}
        <div class="row" role="status">
          {mayOperate.value ? (
            <button
              type="button"
              class="button"
              disabled={review === "asking"}
              onClick={() => {
                setSaid(undefined);
                void compare();
              }}
            >
              {review === undefined ? "Compare with the servers" : "Compare again"}
            </button>
          ) : null}
          {said === undefined ? null : (
            <Status level={said.isBad ? "bad" : "ok"}>
              <span>
                {said.text.split("\n").map((line) => (
                  <span key={line} class="said">
                    {visible(line)}
                  </span>
                ))}
              </span>
            </Status>
          )}
        </div>
        {review === "asking" ? <Skeleton lines={3} /> : null}
        {review === undefined || review === "asking" ? null : <Review review={review} onAccept={accept} />}
      </div>
    </Panel>
  );
}

function Review({
  review,
  onAccept,
}: {
  review: ToolReview;
  onAccept: (changes: readonly ToolChange[]) => Promise<void>;
}) {
  const listed = review.changes.slice(0, LISTED);
  const plain = listed.filter(({ suspicious }) => suspicious.length === 0);
  const left = listed.length - plain.length;
  const failed = review.targets.filter(({ error }) => error !== undefined);
  return (
    <>
      {failed.map(({ target, error }) => (
        <p key={target}>
          <Status level="warn">
            {visible(target)} could not be queried: {visible(error ?? "")}. The list contains only tools that sessions
            saw.
          </Status>
        </p>
      ))}
      {listed.length === 0 ? (
        <p>
          <Status level={failed.length === 0 ? "ok" : "idle"}>No tool differs from the lock file.</Status>
        </p>
      ) : null}
      {review.mayAccept || listed.length === 0 ? null : <p class="muted">{visible(review.reason ?? "")}</p>}
      {review.mayAccept && plain.length > 1 ? (
        <div class="row">
          <SureButton
            label={`Accept all ${plain.length}`}
            question={`Really accept ${toolsText(plain.length)}?`}
            onSure={() => onAccept(plain)}
          />
          {left === 0 ? null : <span class="muted">Suspicious tools are accepted one by one.</span>}
        </div>
      ) : null}
      <ToolChanges
        changes={listed}
        isOpen={listed.length <= 5}
        onAccept={review.mayAccept ? onAccept : undefined}
        servers={review.targets.length}
      />
      {review.changes.length > LISTED ? (
        <p class="muted">And {review.changes.length - LISTED} more, listed once these are accepted.</p>
      ) : null}
    </>
  );
}

/** Sessions report withheld tools, so no connection to a server is needed. */
function Withheld({ backend }: { backend: string }) {
  const found = tasksOfKind(
    tasks.value.value?.tasks ?? [],
    ({ kind, name }) => kind === "mcp backend" && name === backend,
  ).flatMap(({ detail }) => listOf(detail?.quarantined));
  const tools = new Map(found.map((tool) => [`${textOf(tool.target)}/${textOf(tool.tool)}`, tool]));
  if (tools.size === 0) return <p class="muted">No session met a tool that differs from the lock file.</p>;
  return (
    <>
      <p>
        <Status level="warn">{toolsText(tools.size)} withheld from clients</Status>
      </p>
      {[...tools].slice(0, NAMED).map(([name, { difference, suspicious }]) => (
        <Fold key={name} title={<span class="mono">{visible(name)}</span>}>
          {() => (
            <pre class="code">
              {[...linesOf(difference), ...linesOf(suspicious).map((one) => `! ${one}`)].map(visible).join("\n")}
            </pre>
          )}
        </Fold>
      ))}
      {tools.size > NAMED ? <p class="muted">And {tools.size - NAMED} more.</p> : null}
    </>
  );
}

function linesOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

function toolsText(count: number): string {
  return `${count} ${count === 1 ? "tool" : "tools"}`;
}
