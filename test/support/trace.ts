/**
 * Reads `/debug/trace` in tests: waits until the trace is armed, lets the test send its request, and returns the
 * events, normalized for comparison with a golden file.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { TraceEvent, TraceMessage } from "../../src/record/trace/record.ts";
import type { TestGateway } from "./gateway.ts";

export interface OpenTrace {
  readonly events: Promise<TraceEvent[]>;
  /** Everything that came, comments included, once the stream ended. */
  readonly text: Promise<string>;
  /** Resolves when the stream so far matches. */
  shows(pattern: RegExp): Promise<void>;
  cancel(): void;
}

/** Resolves when the gateway waits for a request. */
export async function armTrace(gateway: TestGateway, query = "", method = "GET"): Promise<OpenTrace> {
  const abort = new AbortController();
  const response = await fetch(`${gateway.adminUrl}/debug/trace${query}`, { method, signal: abort.signal });
  if (response.status !== 200 || !response.body) throw new Error(`${response.status} ${await response.text()}`);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = decoder.decode((await reader.read()).value);
  assert.match(text, /^: armed/);
  const waiting = new Set<() => void>();
  const all = (async () => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return text;
      text += decoder.decode(value, { stream: true });
      for (const look of waiting) look();
    }
  })();
  const shows = (pattern: RegExp): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (!pattern.test(text)) return;
        waiting.delete(look);
        resolve();
      };
      waiting.add(look);
      look();
    });
  const events = all.then((whole) =>
    whole
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => JSON.parse(line.slice(5)) as TraceEvent),
  );
  // A test that cancels does not ask for the rest.
  events.catch(() => undefined);
  return { text: all, events, shows, cancel: () => abort.abort() };
}

/** The trace of what `send` does. */
export async function traceOf(gateway: TestGateway, send: () => Promise<unknown>, query = ""): Promise<TraceEvent[]> {
  const trace = await armTrace(gateway, query);
  await send();
  return trace.events;
}

export function typesOf(events: readonly TraceEvent[]): string[] {
  return events.map(({ message }) => {
    const { type, stage, phase } = message as { type: string; stage?: string; phase?: string };
    return [type, stage ?? phase].filter(Boolean).join(" ");
  });
}

export function messagesOf<Type extends TraceMessage["type"]>(
  events: readonly TraceEvent[],
  type: Type,
): Extract<TraceMessage, { type: Type }>[] {
  return events
    .map(({ message }) => message)
    .filter((message): message is Extract<TraceMessage, { type: Type }> => message.type === type);
}

/** The path of the request as it arrived. */
export function pathOf(events: readonly TraceEvent[]): string | undefined {
  const request = messagesOf(events, "requestSnapshot")[0]?.requestState.request as { path: string } | undefined;
  return request?.path;
}

/** Times, ports, ids and dates differ from run to run; everything else must not. */
export function normalised(events: readonly TraceEvent[]): unknown {
  const text = JSON.stringify(events.map(withReadableBody))
    .replace(/"eventStart":\d+/g, '"eventStart":1')
    .replace(/"eventEnd":\d+/g, '"eventEnd":1')
    .replace(/"durationMs":[\d.]+/g, '"durationMs":1')
    .replace(/(127\.0\.0\.1|localhost):\d+/g, "$1:<port>")
    .replace(/"port":\d+/g, '"port":0')
    .replace(/"(startTime|date)":"[^"]*"/g, '"$1":"<time>"')
    .replace(/"(\w+Duration)":"\d+\.\d{6}s"/g, '"$1":"<seconds>"')
    .replace(/"x-request-id":"[0-9a-f]{16}"/g, '"x-request-id":"<id>"')
    .replace(/"mcp-session-id":"[^"]*"/g, '"mcp-session-id":"<session>"')
    .replace(/"sessionId":"[^"]*"/g, '"sessionId":"<session>"')
    .replace(/"user-agent":"[^"]*"/g, '"user-agent":"<agent>"')
    .replace(/"(x-ratelimit-reset|retry-after)":"\d+"/g, '"$1":"<seconds>"')
    .replace(/(\\"created\\":)\d+/g, "$10");
  return JSON.parse(text);
}

/** A golden file is read by people: bodies stand in it as text. */
function withReadableBody(event: TraceEvent): TraceEvent {
  if (event.message.type !== "bodySnapshot") return event;
  return { ...event, message: { ...event.message, body: Buffer.from(event.message.body, "base64").toString() } };
}

/** Compares with test/golden/traces/<name>.json; a missing file is written and must be looked at. */
export function assertGolden(name: string, events: readonly TraceEvent[]): void {
  const file = join("test", "golden", "traces", `${name}.json`);
  const actual = normalised(events);
  if (!existsSync(file)) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${JSON.stringify(actual, null, 2)}\n`);
    assert.fail(`${file} did not exist and was written: look at it and run the test again`);
  }
  assert.deepEqual(actual, JSON.parse(readFileSync(file, "utf8")), `the trace differs from ${file}`);
}
