/**
 * Sends one recorded request again, with an id of its own, and tells the status. Bodies of answers are read and thrown away.
 */
import { Agent, request } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import type { RecordedLine } from "./recording.ts";

/** Belong to the connection, to the body that there is not, or to the recording's gateway. */
const NOT_SENT = new Set([
  "connection",
  "content-length",
  "transfer-encoding",
  "expect",
  "upgrade",
  "keep-alive",
  "te",
  "x-request-id",
  "traceparent",
  "tracestate",
]);
const TIMEOUT_MS = 60_000;
const REDACTED = "<redacted>";

export interface Sender {
  send(line: RecordedLine, id: string): Promise<{ status: number | null; error?: string }>;
  close(): void;
}

export function createSender(target: URL, added: readonly (readonly [string, string])[]): Sender {
  const isTls = target.protocol === "https:";
  const agent = isTls ? new TlsAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
  return {
    send: (line, id) =>
      new Promise((resolve) => {
        const path = `${line.path}${line.query === "" ? "" : `?${line.query}`}`;
        const options = { agent, method: line.method, path, headers: headersOf(line, id, added), timeout: TIMEOUT_MS };
        try {
          const sent = (isTls ? tlsRequest : request)(target, options, (answer) => {
            answer.resume();
            answer.on("end", () => resolve({ status: answer.statusCode ?? null }));
            answer.on("error", (error) => resolve({ status: null, error: error.message }));
          });
          sent.on("timeout", () => sent.destroy(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)));
          sent.on("error", (error) => resolve({ status: null, error: error.message }));
          sent.end();
        } catch (error) {
          // A path or header that cannot be sent.
          resolve({ status: null, error: (error as Error).message });
        }
      }),
    close: () => agent.destroy(),
  };
}

function headersOf(line: RecordedLine, id: string, added: readonly (readonly [string, string])[]): string[] {
  const headers: string[] = ["host", line.host, "x-request-id", id];
  const own = new Set(added.map(([name]) => name));
  for (let i = 0; i + 1 < line.headers.length; i += 2) {
    const name = line.headers[i] as string;
    const value = line.headers[i + 1] as string;
    if (name === "host" || NOT_SENT.has(name) || own.has(name) || value.includes(REDACTED)) continue;
    headers.push(name, value);
  }
  for (const [name, value] of added) headers.push(name, value);
  return headers;
}
