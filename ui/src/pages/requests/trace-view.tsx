/**
 * Shows a trace: the waterfall, and the selected event as JSON, snapshot, difference from the previous snapshot, or
 * body.
 */
import { useState } from "preact/hooks";
import type { TraceEvent } from "../../data/trace.ts";
import { param, setParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";
import { type Tab, Tabs } from "../../parts/tabs.tsx";
import { differences } from "./differences.ts";
import { barOf, labelOf } from "./trace-bars.ts";
import { Waterfall } from "./waterfall.tsx";

type View = "event" | "snapshot" | "difference" | "body";

export function TraceView({ events }: { events: readonly TraceEvent[] }) {
  const asked = param("event");
  const index = asked === "" ? decisiveEvent(events) : Math.min(Number(asked), events.length - 1);
  const event = events[index];
  return (
    <div class="stack">
      <Waterfall
        bars={events.map(barOf)}
        selected={index}
        onSelect={(next) => setParams({ event: String(next) }, { replace: true })}
      />
      {event ? <EventView key={index} event={event} before={snapshotBefore(events, index)} /> : null}
    </div>
  );
}

function EventView({ event, before }: { event: TraceEvent; before: unknown }) {
  const { message } = event;
  const snapshot = "requestState" in message ? message.requestState : undefined;
  const tabs: Tab<View>[] = [
    ...(message.type === "bodySnapshot" ? [{ name: "body" as const, title: "Body" }] : []),
    ...(snapshot === undefined ? [] : [{ name: "snapshot" as const, title: "Snapshot" }]),
    ...(snapshot === undefined || before === undefined ? [] : [{ name: "difference" as const, title: "Difference" }]),
    { name: "event", title: "Event" },
  ];
  const [chosen, setChosen] = useState<View>(tabs[0]?.name ?? "event");
  return (
    <div class="stack">
      <h3>{visible(labelOf(message))}</h3>
      <Tabs<View> label="Event views" tabs={tabs} selected={chosen} onSelect={setChosen} />
      {chosen === "event" ? <Json value={event} open={3} /> : null}
      {chosen === "snapshot" ? <Json value={snapshot} open={3} /> : null}
      {chosen === "difference" ? <Difference before={before} after={snapshot} /> : null}
      {chosen === "body" && message.type === "bodySnapshot" ? (
        <Body base64={message.body} isCut={message.truncated === true} />
      ) : null}
    </div>
  );
}

export function Difference({ before, after }: { before: unknown; after: unknown }) {
  const list = differences(before, after);
  if (list.length === 0) return <p class="muted">No changes since the previous snapshot.</p>;
  return (
    <ScrollX>
      <table class="difference">
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Before</th>
            <th scope="col">After</th>
          </tr>
        </thead>
        <tbody>
          {list.map(({ path, before: old, after: now }) => (
            <tr key={path} class={old === undefined ? "added" : now === undefined ? "removed" : "changed"}>
              <td>
                {old === undefined ? "+ " : now === undefined ? "− " : "± "}
                {visible(path)}
              </td>
              <td class="mono wrap">{visible(old ?? "")}</td>
              <td class="mono wrap">{visible(now ?? "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollX>
  );
}

/** Formats JSON, shows other text unchanged, and shows binary data as hexadecimal. */
function Body({ base64, isCut }: { base64: string; isCut: boolean }) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const text = new TextDecoder("utf-8").decode(bytes);
  const cut = isCut ? <p class="muted">Truncated at 64 KiB.</p> : null;
  const json = parse(text);
  if (json !== undefined)
    return (
      <>
        <Json value={json} open={4} />
        {cut}
      </>
    );
  const isText = !text.includes("\ufffd") || isCut;
  return (
    <>
      <pre class="code wrap">{isText ? visibleLines(text) : hex(bytes)}</pre>
      {cut}
    </>
  );
}

function visibleLines(text: string): string {
  return text.split("\n").map(visible).join("\n");
}

function hex(bytes: Uint8Array): string {
  const shown = bytes.subarray(0, 4096);
  return [...shown].map((byte, i) => byte.toString(16).padStart(2, "0") + (i % 32 === 31 ? "\n" : " ")).join("");
}

function parse(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns the event that decided the outcome: the rejection by a policy, otherwise the failure or error status of the
 * backend, otherwise the failure of the request. It is the first event if the request succeeded.
 */
function decisiveEvent(events: readonly TraceEvent[]): number {
  const isDecisive: ((message: TraceEvent["message"]) => boolean)[] = [
    (message) => message.type === "policy" && message.result === "refused",
    (message) => message.type === "backendCallResult" && (message.error !== null || (message.status ?? 0) >= 400),
    (message) => message.type === "requestFinished" && (message.error !== null || (message.status ?? 0) >= 400),
  ];
  for (const test of isDecisive) {
    const found = events.findLastIndex(({ message }) => test(message));
    if (found >= 0) return found;
  }
  return 0;
}

function snapshotBefore(events: readonly TraceEvent[], index: number): unknown {
  const own = events[index]?.message;
  if (!own || !("requestState" in own)) return undefined;
  for (let i = index - 1; i >= 0; i--) {
    const message = events[i]?.message;
    if (message && message.type === own.type && "requestState" in message) return message.requestState;
  }
  return undefined;
}
