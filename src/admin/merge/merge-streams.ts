/**
 * Streams of all threads as one. The first comment of each thread says the same: one is passed on, when all are ready.
 * The stream ends when one thread says so (the last request that was wanted is traced), or when all threads are gone.
 */
import type { AdminAnswer, AdminSink } from "../server/endpoint.ts";

type Streamed = Extract<AdminAnswer, { stream(sink: AdminSink): void }>;

export function mergeStreams(answers: readonly AdminAnswer[]): AdminAnswer {
  const refused = answers.find((answer) => !("stream" in answer));
  const [first] = answers;
  if (refused !== undefined || first === undefined) {
    // Those who agreed must not wait for a reader that never comes.
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
  let open = answers.length;
  const closers: (() => void)[] = [];
  let isOver = false;
  const close = (): void => {
    if (isOver) return;
    isOver = true;
    for (const one of closers) one();
  };
  sink.onClose(close);
  for (const { stream } of answers) {
    let isReady = false;
    stream({
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
        open -= 1;
        if (isOver || (open > 0 && !isReady)) return;
        close();
        sink.end();
      },
      onClose: (callback) => void closers.push(callback),
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
