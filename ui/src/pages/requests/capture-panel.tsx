/**
 * Shows a pending, running, or completed trace, and the form that starts one.
 */
import { useState } from "preact/hooks";
import { type Capture, captureNext, stopCapture } from "../../data/trace.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { TraceView } from "./trace-view.tsx";

export function CapturePanel({ capture }: { capture: Capture }) {
  const { state, expression, events, error } = capture;
  const words = {
    starting: <Status level="busy">starting</Status>,
    waiting: <Status level="busy">waiting for a request</Status>,
    running: <Status level="busy">running</Status>,
    done: <Status level="ok">complete</Status>,
    failed: <Status level="bad">failed</Status>,
  };
  return (
    <Panel
      title="Trace"
      end={
        <>
          <span role="status">{words[state]}</span>
          <button type="button" class="button" onClick={() => captureNext(expression)}>
            Trace again
          </button>
          <button type="button" class="button quiet" data-close onClick={stopCapture}>
            Close
          </button>
        </>
      }
    >
      <div class="stack">
        <p class="muted">
          {expression === "" ? (
            "Traces the next request."
          ) : (
            <>
              Traces the next request that matches <code>{visible(expression)}</code>
            </>
          )}
        </p>
        {error === undefined ? null : <p class="note bad">{visible(error)}</p>}
        {events.length === 0 ? null : <TraceView events={events} />}
      </div>
    </Panel>
  );
}

export function TraceNextForm() {
  const [expression, setExpression] = useState("");
  return (
    <form
      class="row"
      onSubmit={(event) => {
        event.preventDefault();
        void captureNext(expression.trim());
      }}
    >
      <input
        class="input mono grow"
        aria-label="Trace the next request that matches (CEL)"
        placeholder="any, or CEL"
        value={expression}
        onInput={(event) => setExpression(event.currentTarget.value)}
      />
      <button type="submit" class="button">
        Trace next request
      </button>
    </form>
  );
}
