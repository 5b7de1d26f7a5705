/**
 * Merges the event streams of worker threads. The ready comment is sent once, when all threads are ready. The stream
 * ends when one thread ends it (the last requested trace is complete) and the others have sent their pending events, or
 * when all threads are gone.
 */
import type { AdminAnswer, AdminSink } from "../server/endpoint.ts";

type Streamed = Extract<AdminAnswer, { stream(sink: AdminSink): void }>;

export function mergeStreams(answers: readonly AdminAnswer[]): AdminAnswer {
  const refused = answers.find((answer) => !("stream" in answer));
  const [first] = answers;
  if (refused !== undefined || first === undefined) {
    // Closes the other streams if one thread rejects the request.
    for (const answer of answers) if ("stream" in answer) answer.stream(closedSink);
    return refused ?? { status: 503, type: "text/plain", body: "no thread is running\n" };
  }
  const { status, type, headers } = first;
  return {
    status,
    type,
    ...(headers ? { headers } : {}),
    stream: (sink) => join(answers as readonly Streamed[], sink),
  };
}

function join(answers: readonly Streamed[], sink: AdminSink): void {
  let waiting = answers.length;
  const open = new Set<Streamed>(answers);
  const closers: (() => void)[] = [];
  const finishers = new Map<Streamed, () => void>();
  let isOver = false;
  let isEnding = false;
  const close = (): void => {
    if (isOver) return;
    isOver = true;
    for (const one of closers) one();
  };
  /** Waits for events in flight. */
  const finish = (): void => {
    if (!isEnding) {
      isEnding = true;
      for (const answer of [...open]) {
        const ask = finishers.get(answer);
        if (ask) ask();
        else open.delete(answer);
      }
    }
    if (open.size > 0 || isOver) return;
    close();
    sink.end();
  };
  sink.onClose(close);
  for (const answer of answers) {
    let isReady = false;
    answer.stream({
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
        if (!open.delete(answer) || isOver) return;
        // One that left before it was ready: the others go on.
        if (isReady || isEnding || open.size === 0) finish();
      },
      onClose: (callback) => void closers.push(callback),
      onFinish: (callback) => void finishers.set(answer, callback),
      bufferedBytes: sink.bufferedBytes,
    });
  }
}

const closedSink: AdminSink = {
  write: () => false,
  end: () => undefined,
  onClose: (callback) => callback(),
  bufferedBytes: () => 0,
};
