/** Secrets of the configuration are redacted in each text of an endpoint, whatever a client puts into a trace. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { safeJson } from "../../json/safe-json.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { type AdminResponse, type AdminSink, redactedEndpoint } from "./endpoint.ts";

const SECRET = "planted-secret-0123456789";
const BODY = Buffer.from(`not redacted here: ${SECRET}`).toString("base64");
const redaction = createRedaction();
redaction.hideValues([SECRET]);

const request = { method: "GET", path: "/x" } as never;

async function shownChunks(chunks: readonly (string | Buffer)[]): Promise<readonly (string | Buffer)[]> {
  const response: AdminResponse = {
    status: 200,
    type: "text/event-stream",
    stream: (sink) => {
      for (const chunk of chunks) sink.write(chunk);
    },
  };
  const endpoint = redactedEndpoint({ path: "/x", doc: "", GET: () => response }, redaction);
  const shown = await endpoint.GET?.(request);
  const written: (string | Buffer)[] = [];
  const sink = { write: (chunk: string | Buffer) => written.push(chunk) > 0 };
  assert.ok(shown !== undefined && "stream" in shown);
  shown.stream(sink as unknown as AdminSink);
  return written;
}

const event = (message: unknown): string =>
  `data: ${safeJson({ eventStart: null, eventEnd: 12, severity: "info", message })}\n\n`;
const snapshot = { type: "bodySnapshot", stage: "response", body: BODY };

/** What a client can choose: texts, and the values that its token, body, and messages have. */
const CHOSEN: readonly unknown[] = [
  "bodySnapshot",
  '"type":"bodySnapshot"',
  '{"type":"bodySnapshot","stage":"response","body":""}',
  event(snapshot),
  snapshot,
  { message: snapshot },
  [snapshot],
  { a: { b: [{ type: "bodySnapshot" }] } },
];

const MESSAGES: readonly ((chosen: unknown) => object)[] = [
  (chosen) => ({ type: "requestSnapshot", stage: "initial request", requestState: { jwt: chosen, x: SECRET } }),
  (chosen) => ({ type: "requestSnapshot", stage: "initial request", requestState: { path: SECRET, headers: chosen } }),
  (chosen) => ({ type: "policySelection", phase: "route", effectivePolicy: { a: chosen, b: SECRET } }),
  (chosen) => ({ type: "routeSelection", selectedRoute: SECRET, evaluatedRoutes: [chosen] }),
  (chosen) => ({ type: "backendCallStart", target: SECRET, chosen }),
  (chosen) => ({ type: "backendCallResult", status: null, error: SECRET, target: chosen }),
  (chosen) => ({ type: "responseSnapshot", stage: "final response", requestState: { x: SECRET, headers: chosen } }),
  (chosen) => ({ type: "requestFinished", status: null, error: [chosen, SECRET] }),
  (chosen) => ({ type: "policy", phase: "route", kind: "apiKey", result: "refused", details: SECRET, of: chosen }),
  (chosen) => ({ type: "cel", expression: SECRET, result: { value: chosen } }),
  (chosen) => ({ type: "policyEvent", kind: "mcp", details: { chosen, x: SECRET } }),
  (chosen) => ({ ...snapshot, stage: chosen, body: SECRET }),
  (chosen) => ({ ...snapshot, body: `${SECRET} `, chosen }),
];

test("no value that a client chooses turns off the redaction of a trace", async () => {
  for (const chosen of CHOSEN)
    for (const message of MESSAGES) {
      const written = event(message(chosen));
      const [shown] = await shownChunks([written]);
      assert.ok(typeof shown === "string" && !shown.includes(SECRET) && shown.includes("<redacted>"), written);
    }
});

test("the body of a snapshot is not changed, and other events beside it are redacted", async () => {
  for (const whole of [snapshot, { ...snapshot, truncated: true }])
    assert.deepEqual(await shownChunks([event(whole)]), [event(whole)]);
  const other = event({ type: "backendCallStart", target: SECRET });
  for (const chunk of [event(snapshot) + other, other + event(snapshot), `: armed ${SECRET}\n\n`]) {
    const [shown] = await shownChunks([chunk]);
    assert.ok(typeof shown === "string" && !shown.includes(SECRET), chunk);
  }
});

test("text responses are redacted, and bytes are not changed", async () => {
  const bytes = Buffer.from(SECRET);
  assert.deepEqual(await shownChunks([bytes]), [bytes]);
  for (const type of ["text/plain", "application/json", "text/plain; version=0.0.4"])
    for (const body of [`a ${SECRET} b`, event(snapshot) + SECRET, bytes]) {
      const endpoint = redactedEndpoint({ path: "/x", doc: "", POST: () => ({ status: 200, type, body }) }, redaction);
      const shown = await endpoint.POST?.(request);
      assert.ok(shown !== undefined && "body" in shown);
      if (typeof body === "string") assert.ok(!shown.body.includes(SECRET), type);
      else assert.equal(shown.body, bytes);
    }
});
