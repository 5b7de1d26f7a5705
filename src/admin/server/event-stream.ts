/**
 * Writes a server-sent event stream with heartbeats to one reader. If the reader is slow, events are dropped and
 * counted.
 */

import type { Clock } from "../../base/clock.ts";
import { safeJson } from "../../json/safe-json.ts";
import type { AdminResponse, AdminSink } from "./endpoint.ts";

const KEEP_ALIVE_MS = 1_000;
const MAX_BUFFERED_BYTES = 512 * 1024;

export interface EventStream {
  comment(text: string): void;
  data(value: unknown): void;
  end(): void;
}

/** `open` receives the stream and returns a cleanup function, which is called when either side closes the stream. */
export function eventStreamResponse(clock: Clock, open: (stream: EventStream) => () => void): AdminResponse {
  return {
    status: 200,
    type: "text/event-stream",
    headers: { "cache-control": "no-cache" },
    stream: (sink) => serve(clock, sink, open),
  };
}

function serve(clock: Clock, sink: AdminSink, open: (stream: EventStream) => () => void): void {
  let isOpen = true;
  let dropped = 0;
  let close: (() => void) | undefined;

  function write(text: string): void {
    if (!isOpen) return;
    if (sink.bufferedBytes() + Buffer.byteLength(text) > MAX_BUFFERED_BYTES) {
      dropped += 1;
      return;
    }
    if (dropped > 0) {
      sink.write(`: dropped ${dropped} events: the client reads too slowly\n\n`);
      dropped = 0;
    }
    sink.write(text);
  }

  function stop(): void {
    if (!isOpen) return;
    isOpen = false;
    timer.cancel();
    close?.();
  }

  const timer = clock.every(KEEP_ALIVE_MS, () => {
    if (sink.bufferedBytes() === 0) write(": keep-alive\n\n");
  });
  sink.onClose(stop);
  close = open({
    comment: (text) => write(`: ${text}\n\n`),
    data: (value) => write(`data: ${safeJson(value)}\n\n`),
    end() {
      if (!isOpen) return;
      stop();
      sink.end();
    },
  });
  if (!isOpen) close();
}
