/**
 * Compares the trace of a request with recorded messages: every `final request` must have reached a server, and every
 * `raw response` must be the head of a response, both redacted alike.
 */

import type { TraceEvent } from "../../src/record/trace/record.ts";
import { type Redaction, redactBody } from "../../src/record/trace/redact.ts";
import type { RecordedExchange } from "./wire-recorder.ts";

export interface Seen {
  /** Of HTTP servers, since the last look. */
  readonly exchanges: readonly RecordedExchange[];
  /** Lines that a child process read, since the last look. */
  readonly lines: readonly string[];
}

export interface Comparison {
  readonly requests: number;
  readonly responses: number;
  readonly differences: readonly string[];
}

/** What the trace keeps of a body. */
const SHOWN_BYTES = 64 * 1024;

export function compareWithWire(events: readonly TraceEvent[], seen: Seen, redaction: Redaction): Comparison {
  const differences: string[] = [];
  const secrets = seen.exchanges.flatMap(({ request }) => redaction.secrets(request.pairs));
  const requests = sentIn(events);
  const heads = seen.exchanges.map(({ request }) => recordedRequest(request, redaction));
  const lines = [...seen.lines];
  const matched: RecordedExchange[] = [];
  for (const { request, body } of requests) {
    if (typeof request.uri === "string" && request.uri.startsWith("stdio:")) {
      const at = lines.indexOf(Buffer.from(body ?? "", "base64").toString());
      if (at < 0) differences.push(`no such line: ${Buffer.from(body ?? "", "base64")}`);
      else lines.splice(at, 1);
      continue;
    }
    const shown = JSON.stringify({
      method: request.method,
      uri: request.uri,
      version: request.version,
      headers: request.headers,
      body: body ?? "",
    });
    const at = heads.indexOf(shown);
    if (at < 0) differences.push(`no server got\n  ${shown}\nbut\n  ${heads.join("\n  ")}`);
    else {
      matched.push(seen.exchanges[at] as RecordedExchange);
      heads[at] = "";
    }
  }
  const answers = matched.map(({ response }) =>
    response === undefined
      ? ""
      : JSON.stringify({
          code: Number(response.start.split(" ")[1]),
          headers: redaction.headers(response.pairs, secrets),
        }),
  );
  const responses = receivedIn(events);
  for (const response of responses) {
    const at = answers.indexOf(JSON.stringify(response));
    if (at < 0) differences.push(`no server answered\n  ${JSON.stringify(response)}\nbut\n  ${answers.join("\n  ")}`);
    else answers[at] = "";
  }
  return { requests: requests.length, responses: responses.length, differences };
}

function sentIn(events: readonly TraceEvent[]): { request: Record<string, unknown>; body?: string }[] {
  const sent: { request: Record<string, unknown>; body?: string }[] = [];
  for (const { message } of events) {
    if (message.type === "requestSnapshot" && message.stage === "final request")
      sent.push({ request: message.requestState.request as Record<string, unknown> });
    if (message.type === "bodySnapshot" && message.stage === "final request") {
      const open = sent.find(({ body }) => body === undefined);
      if (open) open.body = message.body;
    }
  }
  return sent;
}

function receivedIn(events: readonly TraceEvent[]): { code: number; headers: object }[] {
  return (
    events
      .flatMap(({ message }) =>
        message.type === "responseSnapshot" && message.stage === "raw response"
          ? [message.requestState.response as { code: number; headers: object }]
          : [],
      )
      // The answer of a child process has no head: the gateway's own status stands for it.
      .filter(({ headers }) => Object.keys(headers).length > 0)
  );
}

function recordedRequest({ start, pairs, body }: RecordedExchange["request"], redaction: Redaction): string {
  const [method = "", target = "", version = ""] = start.split(" ");
  const headers = redaction.headers(pairs);
  const at = target.indexOf("?");
  const shown = at < 0 ? target : `${target.slice(0, at)}?${redaction.query(target.slice(at + 1))}`;
  const bytes = redactBody(body.subarray(0, SHOWN_BYTES), headers["content-type"] as string | undefined);
  return JSON.stringify({
    method,
    uri: `http://${headers.host}${shown}`,
    version,
    headers,
    body: bytes.toString("base64"),
  });
}
