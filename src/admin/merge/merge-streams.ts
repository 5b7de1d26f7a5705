/**
 * Merges the event streams of worker threads. The ready comment is sent once, when all threads are ready. The stream
 * ends when one thread ends it (the last requested trace is complete) and the others have sent their pending events, or
 * when all threads have exited.
 */
import type { AdminResponse, AdminSink } from "../server/endpoint.ts";

type Streamed = Extract<AdminResponse, { stream(sink: AdminSink): void }>;

export function mergeStreams(responses: readonly AdminResponse[]): AdminResponse {
  const rejected = responses.find((response) => !("stream" in response));
  const [first] = responses;
  if (rejected !== undefined || first === undefined) {
    for (const response of responses) if ("stream" in response) response.stream(closedSink);
    return rejected ?? { status: 503, type: "text/plain", body: "no thread is running\n" };
  }
  const { status, type, headers } = first;
  return {
    status,
    type,
    ...(headers ? { headers } : {}),
    stream: (sink) => join(responses as readonly Streamed[], sink),
  };
}

function join(responses: readonly Streamed[], sink: AdminSink): void {
  let waiting = responses.length;
  const open = new Set<Streamed>(responses);
  const closers: (() => void)[] = [];
  const finishers = new Map<Streamed, () => void>();
  let isOver = false;
  let isEnding = false;
  const close = (): void => {
    if (isOver) return;
    isOver = true;
    for (const one of closers) one();
  };
  /** The other threads may still have pending events, so each thread finishes before the stream ends. */
  const finish = (): void => {
    if (!isEnding) {
      isEnding = true;
      for (const response of [...open]) {
        const requestFinish = finishers.get(response);
        if (requestFinish) requestFinish();
        else open.delete(response);
      }
    }
    if (open.size > 0 || isOver) return;
    close();
    sink.end();
  };
  sink.onClose(close);
  for (const response of responses) {
    let isReady = false;
    response.stream({
      write(chunk) {
        if (isOver) return false;
        if (!isReady) {
          isReady = true;
          waiting -= 1;
          if (waiting > 0) return true;
        }
        return sink.write(chunk);
      },
      end() {
        if (!open.delete(response) || isOver) return;
        // If a thread ends before it was ready, the other streams continue.
        if (isReady || isEnding || open.size === 0) finish();
      },
      onClose: (callback) => void closers.push(callback),
      onFinish: (callback) => void finishers.set(response, callback),
      bufferedBytes: sink.bufferedBytes,
    });
  }
}

export const closedSink: AdminSink = {
  write: () => false,
  end: () => undefined,
  onClose: (callback) => callback(),
  bufferedBytes: () => 0,
};
