/**
 * Lists changed tools by server, with the differences and suspicious content, and a button to accept each.
 */
import { Fold } from "../../parts/fold.tsx";
import { visible } from "../../parts/format.ts";
import { type Level, Status } from "../../parts/status.tsx";
import { SureButton } from "../../parts/sure-button.tsx";
import { DiffView } from "../config/diff-view.tsx";
import { definitionText } from "./definition-text.ts";
import type { ToolChange } from "./tool-review.ts";

type Accept = (changes: readonly ToolChange[]) => Promise<void>;

const LEVELS: Readonly<Record<ToolChange["state"], Level>> = { new: "idle", changed: "warn", gone: "idle" };

export function ToolChanges({
  changes,
  isOpen,
  onAccept,
  servers,
}: {
  changes: readonly ToolChange[];
  isOpen: boolean;
  /** The value is undefined if the user may not accept changes. */
  onAccept: Accept | undefined;
  servers: number;
}) {
  const targets = [...new Set(changes.map(({ target }) => target))];
  return (
    <>
      {targets.map((target) => {
        const own = changes.filter((change) => change.target === target);
        const plain = own.filter(({ suspicious }) => suspicious.length === 0);
        return (
          <section key={target} class="stack" aria-label={visible(target)}>
            {servers < 2 ? null : (
              <div class="row">
                <h3 class="mono">{visible(target)}</h3>
                {onAccept && plain.length > 1 && targets.length > 1 ? (
                  <SureButton
                    label={`Accept ${plain.length} of this server`}
                    question={`Really accept ${plain.length} tools?`}
                    onSure={() => onAccept(plain)}
                  />
                ) : null}
              </div>
            )}
            {own.map((change) => (
              <Change key={change.hash} change={change} isOpen={isOpen} onAccept={onAccept} />
            ))}
          </section>
        );
      })}
    </>
  );
}

function Change({ change, isOpen, onAccept }: { change: ToolChange; isOpen: boolean; onAccept: Accept | undefined }) {
  const { tool, state, suspicious } = change;
  const isSuspicious = suspicious.length > 0;
  return (
    <article class="tool-change" aria-label={visible(tool)}>
      <div class="row">
        <Status level={isSuspicious ? "bad" : LEVELS[state]}>{state}</Status>
        <strong class="mono grow">{visible(tool)}</strong>
        {onAccept ? (
          <SureButton
            label={isSuspicious ? "Accept anyway" : "Accept"}
            question={isSuspicious ? "Really accept it, suspicious as it is?" : "Really accept it?"}
            onSure={() => onAccept([change])}
          />
        ) : null}
      </div>
      {suspicious.map((reason) => (
        <p key={reason}>
          <Status level="bad">Suspicious: it {visible(reason)}</Status>
        </p>
      ))}
      {state === "gone" ? (
        <p class="muted">The server no longer offers it. Accepting this removes it from the lock file.</p>
      ) : (
        <Fold title={state === "new" ? "Definition" : "Differences"} isOpen={isOpen || isSuspicious}>
          {() => <Difference change={change} />}
        </Fold>
      )}
    </article>
  );
}

function Difference({ change: { before, now } }: { change: ToolChange }) {
  const after = now === undefined ? "" : definitionText(now);
  return before === undefined ? (
    <pre class="code wrapped">{after}</pre>
  ) : (
    <div class="wrapped">
      <DiffView before={definitionText(before)} after={after} />
    </div>
  );
}
