/** No error or attribute of a span quotes a credential of the request or a secret of the configuration. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, type ExchangeParts, finishedRequest } from "../../../test/support/exchange.ts";
import { Attempt } from "../../core/exchange.ts";
import { RequestSpans } from "../trace/live-records.ts";
import { createRedaction } from "../trace/redact.ts";
import { requestSpanList } from "./request-spans.ts";
import type { Span } from "./span-encoder.ts";

const HEADERS = {
  authorization: "Bearer planted-bearer-0123456789",
  cookie: "theme=dark; session=planted-cookie-0123456789",
  "x-api-key": "planted-key-0123456789",
  "x-tenant": "planted-tenant-0123456789",
};
const CREDENTIAL = "planted-parameter-0123456789";
const CONFIGURED = "planted-configured-0123456789";
const SECRETS: readonly string[] = [
  "planted-bearer-0123456789",
  "planted-cookie-0123456789",
  HEADERS["x-api-key"],
  HEADERS["x-tenant"],
  CREDENTIAL,
  CONFIGURED,
];

const redaction = createRedaction(["x-tenant"]);
redaction.hideValues([CONFIGURED]);

/** Requests whose failure becomes the error of a call. */
const CALLS: Readonly<Record<string, ExchangeParts>> = {
  http: {},
  llm: {
    path: "/v1/chat/completions",
    backend: { name: "b", type: "ai", protocol: "llm" } as never,
    llm: { requestModel: "m", provider: "p" } as never,
  },
  mcp: { mcp: { methodName: "tools/call", tool: { name: "t", target: "s" }, outcome: "error" } as never },
};

function spansFor(parts: ExchangeParts, isDetailed: boolean, quote: (secret: string) => string): readonly Span[] {
  const copies = SECRETS.map(quote).join("/");
  const exchange = anExchange({
    ...{ path: `/${copies}`, ...parts },
    headers: { ...HEADERS, "user-agent": `agent/${copies}` },
  });
  exchange.credentials.secrets = [CREDENTIAL];
  const text = SECRETS.map(quote).join(" ");
  exchange.failure = { code: "upstream_error" as never, source: "upstream" as never, message: text, detail: text };
  let ids = 0;
  const newSpanId = (): string => String(++ids);
  const noted = new RequestSpans({
    traceId: "t",
    spanId: "s",
    parentId: undefined,
    tracestate: undefined,
    isDetailed,
    newSpanId,
    steps: exchange.steps,
  });
  noted.callId = newSpanId();
  noted.callStartMs = 1;
  for (const [error, status] of [
    [text, undefined],
    [text, 502],
    [undefined, 500],
  ] as const) {
    const attempt = new Attempt("a.example:1", 1, undefined);
    Object.assign(attempt, { error, status, retryReason: text, spanId: newSpanId(), resultMs: 2 });
    exchange.attempts.add(attempt, false);
  }
  const outcome = { status: 502, end: "failed", responseBytes: 0 } as const;
  const finished = finishedRequest(exchange, outcome, 5 - exchange.startedMs, redaction);
  return requestSpanList({ redaction, added: undefined, removed: new Set(), newSpanId }, finished, noted);
}

const QUOTES: Readonly<Record<string, (secret: string) => string>> = {
  alone: (secret) => `"${secret}"`,
  "with its scheme": (secret) => `invalid credential Bearer ${secret}`,
  "in a cookie": (secret) => `session=${secret}; theme=dark`,
  "inside a word": (secret) => `x${secret}x`,
};

for (const [call, parts] of Object.entries(CALLS))
  for (const isDetailed of [true, false])
    for (const [name, quote] of Object.entries(QUOTES))
      test(`spans of ${call}, ${isDetailed ? "detailed" : "one for each request"}: a secret ${name} is not exported`, () => {
        const spans = spansFor(parts, isDetailed, quote);
        const failed = spans.filter(({ error }) => error !== undefined);
        assert.ok(failed.length >= (isDetailed ? 3 : 1), `${failed.length} of ${spans.length} spans have an error`);
        const shown = JSON.stringify(spans);
        for (const secret of SECRETS) assert.ok(!shown.includes(secret), `${secret} in ${shown}`);
        assert.match(failed.map(({ error }) => error).join(" "), /<redacted>/);
      });
