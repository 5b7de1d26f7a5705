/**
 * Sends a recorded request again, with changes, to the same listener. Credentials are not recorded, and bodies only
 * for some failed requests, so the user can fill in both.
 */
import { useState } from "preact/hooks";
import { durationText } from "../../../../src/base/format.ts";
import { callListener } from "../../data/call.ts";
import { type RequestDetail, requestList } from "../../data/requests.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Status } from "../../parts/status.tsx";

const METHODS = ["GET", "POST", "DELETE"] as const;
const REDACTED = "<redacted>";
/** These headers apply to one connection or are generated for each request. */
const LEFT_OUT = new Set(["content-length", "connection", "accept-encoding", "transfer-encoding", "x-request-id"]);
const SHOWN_CHARS = 20_000;

interface Sent {
  readonly status?: number;
  readonly requestId?: string | undefined;
  readonly text?: string;
  readonly tookMs?: number;
  readonly problem?: string;
}

export function Resend({ detail }: { detail: RequestDetail }) {
  const request = (detail.requestState.request ?? {}) as {
    pathAndQuery?: string;
    headers?: Record<string, string | string[]>;
  };
  const [method, setMethod] = useState<string>(METHODS.find((one) => one === detail.method) ?? "GET");
  const [path, setPath] = useState(request.pathAndQuery ?? detail.path);
  const [headers, setHeaders] = useState(headerLines(request.headers ?? {}));
  const [body, setBody] = useState(keptBody(detail));
  const [sent, setSent] = useState<Sent | undefined>(undefined);
  const [isSending, setIsSending] = useState(false);
  const send = async (): Promise<void> => {
    setIsSending(true);
    const startedMs = performance.now();
    try {
      const response = await callListener({
        listener: detail.listener,
        method: METHODS.find((one) => one === method) ?? "GET",
        path,
        headers: headersOf(headers),
        ...(method === "POST" ? { body } : {}),
      });
      setSent({
        status: response.status,
        requestId: response.headers.get("x-request-id"),
        text: response.text,
        tookMs: performance.now() - startedMs,
      });
      void requestList.refresh();
    } catch (error) {
      setSent({ problem: (error as Error).message });
    }
    setIsSending(false);
  };
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <div class="row">
        <select
          class="input method"
          aria-label="Method"
          value={method}
          onChange={(event) => setMethod(event.currentTarget.value)}
        >
          {METHODS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <input
          class="input mono grow"
          aria-label="Path and query"
          value={path}
          onInput={(event) => setPath(event.currentTarget.value)}
        />
      </div>
      <label class="field">
        <span>Headers, one per line (credentials are not kept: fill them in)</span>
        <textarea
          class="input mono"
          rows={Math.min(8, headers.split("\n").length + 1)}
          value={headers}
          onInput={(event) => setHeaders(event.currentTarget.value)}
        />
      </label>
      {method === "POST" ? (
        <label class="field">
          <span>Body{body === "" ? " (bodies of failed requests are kept with config.tracing.keepFailed)" : ""}</span>
          <textarea class="input mono" rows={5} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
        </label>
      ) : null}
      <div class="row">
        <button type="submit" class="button primary" disabled={isSending}>
          Send
        </button>
        {isSending ? <Status level="busy">sending</Status> : null}
        {sent?.status === undefined ? null : (
          <>
            <Status level={sent.status >= 500 ? "bad" : sent.status >= 400 ? "warn" : "ok"}>{sent.status}</Status>
            <span class="muted">{durationText(sent.tookMs)}</span>
            {sent.requestId === undefined ? null : <a href={pageHref("requests", { id: sent.requestId })}>See why</a>}
          </>
        )}
      </div>
      {sent?.problem === undefined ? null : <p class="note bad">{visible(sent.problem)}</p>}
      {sent?.text === undefined ? null : (
        <pre class="code wrap">{sent.text.slice(0, SHOWN_CHARS).split("\n").map(visible).join("\n")}</pre>
      )}
    </form>
  );
}

function headerLines(headers: Record<string, string | string[]>): string {
  return Object.entries(headers)
    .filter(([name]) => !LEFT_OUT.has(name))
    .flatMap(([name, values]) => [values].flat().map((value) => `${name}: ${value === REDACTED ? "" : value}`))
    .join("\n");
}

function headersOf(text: string): Record<string, string> {
  return Object.fromEntries(
    text.split("\n").flatMap((line) => {
      const colon = line.indexOf(":");
      const value = line.slice(colon + 1).trim();
      return colon < 1 || value === "" ? [] : [[line.slice(0, colon).trim().toLowerCase(), value]];
    }),
  );
}

function keptBody({ trace }: RequestDetail): string {
  for (const { message } of trace ?? [])
    if (message.type === "bodySnapshot" && message.stage !== "response")
      return new TextDecoder().decode(Uint8Array.from(atob(message.body), (char) => char.charCodeAt(0)));
  return "";
}
