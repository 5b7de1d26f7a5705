/**
 * Sends playground requests to the gateway's own listeners. The admin interface forwards them, because listeners send
 * no CORS headers for this page.
 */
import { streamLines } from "./api.ts";

export interface ListenerRequest {
  readonly listener: string;
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface ListenerResponse {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  /** Contains the whole body, even if it was streamed. */
  readonly text: string;
}

export interface AnswerHandlers {
  onHead?(status: number, headers: ReadonlyMap<string, string>): void;
  onText?(text: string): void;
  readonly signal?: AbortSignal;
}

type Line = { status: number; headers: [string, string][] } | { text: string } | { end: true } | { error: string };

export async function callListener(request: ListenerRequest, handlers: AnswerHandlers = {}): Promise<ListenerResponse> {
  let status = 0;
  let headers: ReadonlyMap<string, string> = new Map();
  let text = "";
  let failure: string | undefined;
  await streamLines(
    "call",
    (line) => {
      if (line === "") return;
      const part = JSON.parse(line) as Line;
      if ("status" in part) {
        status = part.status;
        headers = new Map(part.headers);
        handlers.onHead?.(status, headers);
      } else if ("text" in part) {
        text += part.text;
        handlers.onText?.(part.text);
      } else if ("error" in part) failure = part.error;
    },
    { body: request, ...(handlers.signal ? { signal: handlers.signal } : {}) },
  );
  if (failure !== undefined) throw new Error(`the listener did not respond: ${failure}`);
  return { status, headers, text };
}

/** Returns a function that accepts chunks of text and calls `onData` with the `data` of each server-sent event. */
export function createEventReader(onData: (data: string) => void): (text: string) => void {
  let rest = "";
  return (text) => {
    rest += text;
    for (;;) {
      const end = /\r?\n\r?\n/.exec(rest);
      if (!end) return;
      const block = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
      const data = block
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(line[5] === " " ? 6 : 5));
      if (data.length > 0) onData(data.join("\n"));
    }
  };
}
