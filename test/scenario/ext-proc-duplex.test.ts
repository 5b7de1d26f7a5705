/**
 * `extProc` with `fullDuplexStreamed` bodies: the processor gets chunks without waiting, and sends a new body when it
 * wants, also before it responds to the headers or after the end.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { type ProcessorAnswer, pass, type ReceivedMessage, startProcessor } from "../support/ext-proc/service.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";

type Kind = ReceivedMessage["kind"];

const changed = (kind: Kind, response: object): Record<string, unknown> => ({ [kind]: { response } });
const streamed = (kind: Kind, body: string, endOfStream: boolean): Record<string, unknown> =>
  changed(kind, { bodyMutation: { streamedResponse: { body: Buffer.from(body), endOfStream } } });
const setHeader = (key: string, value: string) => ({ setHeaders: [{ header: { key, rawValue: Buffer.from(value) } }] });

const MODES = "requestBody: fullDuplexStreamed, responseBody: fullDuplexStreamed";

interface StartOptions {
  readonly fields?: string;
  readonly modes?: string;
  readonly timeout?: string;
  readonly respond?: (to: ServerResponse) => void;
}

async function started(
  t: TestContext,
  answer: (message: ReceivedMessage) => ProcessorAnswer,
  { fields = "", modes = MODES, timeout = "30s", respond }: StartOptions = {},
) {
  const processor = await startProcessor(answer);
  t.after(() => processor.close());
  const received: { headers: IncomingHttpHeaders; body: string }[] = [];
  const { host } = await backendFor(t, async (request, response) => {
    let body = "";
    for await (const part of request) body += String(part);
    received.push({ headers: request.headers, body });
    if (respond) respond(response);
    else response.end(`got ${body.length}`);
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { extProc: { host: "${processor.host}", timeout: ${timeout}, processingMode: { ${modes} }${fields} } }
    backends: [{ host: "${host}" }]
`,
  );
  const post = (body: string | ReadableStream<Uint8Array>) =>
    fetch(gateway.url(), { method: "POST", body, duplex: "half" } as RequestInit);
  return { processor, gateway, received, post };
}

/** Collects a request body, then responds to the headers and sends a new body in two parts. */
function collector(kind: "request" | "response" = "request") {
  let text = "";
  return (message: ReceivedMessage): ProcessorAnswer => {
    if (message.kind === `${kind}Headers`) {
      text = "";
      return message.endOfStream || kind === "response" ? pass(message) : "never";
    }
    if (message.kind !== `${kind}Body`) return pass(message);
    text += message.body;
    if (!message.endOfStream) return "never";
    const headers = changed(`${kind}Headers`, { headerMutation: setHeader("x-set", String(text.length)) });
    const parts = [streamed(`${kind}Body`, text.toUpperCase(), false), streamed(`${kind}Body`, "!", true)];
    return kind === "request" ? [headers, ...parts] : parts;
  };
}

/** A body of unknown length, in chunks. */
function chunks(...parts: string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
      controller.close();
    },
  });
}

for (const [name, body] of [
  ["a small body", () => "hello"],
  ["a large body", () => "x".repeat(300_000)],
  ["a body of unknown length", () => chunks("hel", "lo")],
] as const)
  test(`a processor reads ${name} before it responds to the headers`, async (t) => {
    const { post, received, processor } = await started(t, collector());
    const response = await post(body());
    const text = typeof body() === "string" ? String(body()) : "hello";
    assert.equal(await response.text(), `got ${text.length + 1}`);
    assert.equal(received[0]?.body, `${text.toUpperCase()}!`);
    assert.equal(received[0]?.headers["x-set"], String(text.length));
    assert.deepEqual(processor.received[0]?.modes, { requestBodyMode: 4, responseBodyMode: 4 });
    const sent = processor.received.filter(({ kind }) => kind === "requestBody");
    assert.equal(sent.map((message) => message.body).join(""), text);
    assert.ok(sent.every((message) => message.body.length <= 64 * 1024));
    await eventually("the stream is closed", () => processor.open() === 0);
  });

test("a client that expects 100 Continue gets it", async (t) => {
  const { gateway } = await started(t, collector());
  const client = openRawClient(gateway.port());
  t.after(() => client.close());
  client.write("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n");
  await client.until("100 Continue");
  client.write("5\r\nhello\r\n0\r\n\r\n");
  await client.until("got 6");
});

test("a request without a body needs only its headers", async (t) => {
  const { gateway, processor } = await started(t, collector());
  assert.equal(await (await fetch(gateway.url())).text(), "got 0");
  assert.deepEqual([processor.received[0]?.kind, processor.received[0]?.endOfStream], ["requestHeaders", true]);
});

test("a chunk of a response reaches the client while the backend is still sending", async (t) => {
  let backend: ServerResponse | undefined;
  const { gateway } = await started(
    t,
    (message) =>
      message.kind === "responseBody"
        ? streamed(message.kind, message.body.toUpperCase(), message.endOfStream)
        : pass(message),
    {
      modes: "responseBody: fullDuplexStreamed",
      respond: (response) => {
        backend = response;
        response.write("one ");
      },
    },
  );
  const response = await fetch(gateway.url());
  const reader = response.body?.getReader();
  const first = await reader?.read();
  assert.equal(Buffer.from(first?.value ?? []).toString(), "ONE ");
  backend?.end("two");
  let rest = "";
  for (let part = await reader?.read(); part?.done === false; part = await reader?.read())
    rest += Buffer.from(part.value).toString();
  assert.equal(rest, "TWO");
});

test("a processor can read a whole response before it sends a new one", async (t) => {
  const { post } = await started(t, collector("response"), {
    modes: "responseBody: fullDuplexStreamed",
    respond: (response) => {
      response.write("one ");
      response.end("two");
    },
  });
  const response = await post("hello");
  assert.equal(await response.text(), "ONE TWO!");
  assert.equal(response.headers.get("content-length"), null);
});

test("a response without a mutation lets its chunk pass", async (t) => {
  const { post, received } = await started(t, pass, { respond: (response) => response.end("as it is") });
  for (const body of ["hello", "x".repeat(300_000), chunks("hel", "lo")]) {
    assert.equal(await (await post(body)).text(), "as it is");
    assert.equal(received.at(-1)?.body.length, typeof body === "string" ? body.length : 5);
  }
});

test("a permitted override selects the mode after the headers", async (t) => {
  const collect = collector();
  const { post, received } = await started(
    t,
    (message) => {
      if (message.kind === "requestHeaders") return { ...pass(message), modeOverride: { requestBodyMode: 4 } };
      const said = collect(message);
      return Array.isArray(said) ? said.slice(1) : said;
    },
    { modes: "requestBody: none", fields: ", allowModeOverride: true" },
  );
  assert.equal((await post("hello")).status, 200);
  assert.equal(received[0]?.body, "HELLO!");
});

for (const [name, body] of [
  ["buffered", "hello"],
  ["streamed", undefined],
] as const)
  test(`an immediate response to a ${name} body reaches the client`, async (t) => {
    const { post, received } = await started(t, ({ kind }) =>
      kind === "requestHeaders"
        ? "never"
        : { immediateResponse: { status: { code: 429 }, body: Buffer.from("later") } },
    );
    const response = await post(body ?? chunks("hel", "lo"));
    assert.deepEqual([response.status, await response.text()], [429, "later"]);
    assert.equal(received.length, 0);
  });

const failures: [name: string, answer: (message: ReceivedMessage) => ProcessorAnswer, timeout?: string][] = [
  ["fails at the headers", () => "error"],
  ["fails at the body", ({ kind }) => (kind === "requestBody" ? "error" : "never")],
  ["never responds", () => "never", "1ms"],
  [
    "responds to the body but not to the headers",
    ({ kind, body }) => (kind === "requestBody" ? streamed(kind, body, true) : "never"),
    "1ms",
  ],
  ["sends an invalid status", () => ({ immediateResponse: { status: { code: 101 } } })],
];

for (const [name, answer, timeout = "30s"] of failures)
  for (const body of ["hello", "chunks"])
    test(`a processor that ${name} closes the route, or is skipped with failureMode: open (${body})`, async (t) => {
      const options = { modes: "requestBody: fullDuplexStreamed", timeout };
      const send = () => (body === "hello" ? body : chunks("hel", "lo"));
      const closed = await started(t, answer, options);
      const rejected = await closed.post(send());
      assert.deepEqual([rejected.status, rejected.headers.get("x-gateway-error")], [503, "not_ready"]);
      assert.equal(closed.received.length, 0);
      if (name.startsWith("responds")) return;
      const open = await started(t, answer, { ...options, fields: ", failureMode: open" });
      assert.equal((await open.post(send())).status, 200);
      assert.equal(open.received[0]?.body, "hello");
    });

test("a failure within a new body ends the request, also with failureMode: open", async (t) => {
  const { post } = await started(
    t,
    ({ kind, body }) =>
      kind !== "responseBody" ? changed(kind, {}) : body === "" ? "error" : streamed(kind, "new", false),
    { modes: "responseBody: fullDuplexStreamed", fields: ", failureMode: open", respond: (to) => to.end("old") },
  );
  await assert.rejects(post("hello").then((response) => response.text()));
});

test("a body that waits for the processor is limited", async (t) => {
  const modes = "requestBody: fullDuplexStreamed";
  const { post, received } = await started(t, () => "never", { modes, fields: ", maxBodyBytes: 10" });
  assert.equal((await post(chunks("x".repeat(11)))).status, 413);
  assert.equal((await post("x".repeat(100_000))).status, 413);
  assert.equal(received.length, 0);
  const held = await started(t, (message) => (message.kind === "responseBody" ? "never" : pass(message)), {
    modes: "responseBody: fullDuplexStreamed",
    fields: ", maxBodyBytes: 10",
    respond: (response) => response.end("x".repeat(11)),
  });
  await assert.rejects(held.post("hello").then((response) => response.text()));
});

test("a processor that sends more responses than chunks has failed", async (t) => {
  const { post } = await started(t, (message) =>
    message.kind === "requestBody" ? [pass(message), pass(message)] : message.endOfStream ? pass(message) : "never",
  );
  assert.equal((await post("hello")).status, 503);
});
