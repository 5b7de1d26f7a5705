/**
 * Prompt guards through a running gateway: a secret in every place of a request, a response and a stream that a client or a
 * model reads, with guards that mask and guards that reject.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

const SECRET = "secret-123";
type Provider = "openAI" | "anthropic" | "gemini";
type Event = object | string;

/** What the provider answers: events of a stream, or a JSON body. */
interface Answer {
  readonly status?: number;
  readonly events?: readonly Event[];
  readonly body?: object;
}

let answer: Answer = {};
let sent: string[] = [];
let backend: TestBackend;
let gateway: TestGateway;

before(async () => {
  backend = await startBackend((request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      sent.push(text);
      const { status = 200, events, body = {} } = answer;
      if (events === undefined) {
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
        return;
      }
      response.writeHead(status, { "content-type": "text/event-stream" });
      for (const event of events) {
        const type = typeof event === "object" ? (event as { type?: string }).type : undefined;
        const name = type === undefined ? "" : `event: ${type}\n`;
        response.write(`${name}data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`);
      }
      response.end();
    });
  });
  const routes = (["openAI", "anthropic", "gemini"] as const).flatMap((provider) =>
    ["request", "response"].flatMap((direction) =>
      ["mask", "reject"].map(
        (action) => `
  - matches: [{ path: { pathPrefix: /${provider}-${direction}-${action} } }]
    backends: [{ ai: { provider: { ${provider}: {} }, auth: { key: k }, hostOverride: "${backend.host}" } }]
    policies: { ai: { promptGuard: { ${direction}: [{ regex: { action: ${action}, rules: [{ pattern: "(?i)secret-\\\\d+" }] } }] } } }`,
      ),
    ),
  );
  gateway = await startGateway(`gateways: { default: { port: 0 } }\nroutes:${routes.join("")}\n`);
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

/** The base of a route whose guards look in one direction. */
function guarded(provider: Provider, direction: string, action: string, next: Answer): string {
  answer = next;
  sent = [];
  return `${gateway.url()}/${provider}-${direction}-${action}`;
}

/** Everything that the client got, also if the connection broke. */
async function read(response: Response): Promise<string> {
  let text = "";
  try {
    for await (const part of response.body ?? []) text += Buffer.from(part).toString();
  } catch {
    // A rejected stream ends with a broken connection.
  }
  return text;
}

const ask = (base: string, path: string, body: object): Promise<Response> =>
  fetch(`${base}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "anthropic-version": "2023-06-01" },
    body: JSON.stringify(body),
  });

/** Every string of the data of all events, joined by where it stands: what a client puts together. */
function channels(stream: string): string[] {
  const joined = new Map<string, string>();
  const walk = (value: unknown, path: string): void => {
    if (typeof value === "string") joined.set(path, (joined.get(path) ?? "") + value);
    else if (Array.isArray(value))
      for (const [i, item] of value.entries()) walk(item, `${path}.${(item as { index?: number } | null)?.index ?? i}`);
    else if (typeof value === "object" && value !== null)
      for (const [name, member] of Object.entries(value)) walk(member, `${path}.${name}`);
  };
  for (const [, data = ""] of stream.matchAll(/^data: (.*)$/gm)) {
    if (data === "[DONE]") continue;
    const event = JSON.parse(data) as { index?: number };
    walk(event, String(event.index ?? ""));
  }
  return [...joined.values()];
}

const choice = (index: number, delta: object, more: object = {}): object => ({
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [{ index, delta, finish_reason: null, ...more }],
});
const finished = (index: number): object => choice(index, {}, { finish_reason: "stop" });
const usage = {
  id: "c",
  object: "chat.completion.chunk",
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 1 },
};
const PIECES = ["ok sec", "ret", "-", "12", "3 end"];
const chat = (...events: readonly Event[]): readonly Event[] => [...events, "[DONE]"];
const tool = (index: number, piece: string): object => ({ tool_calls: [{ index, function: { arguments: piece } }] });

const CHAT_STREAMS: Readonly<Record<string, readonly Event[]>> = {
  "two choices in turn": chat(
    ...PIECES.flatMap((content, i) => [choice(0, { content }), choice(1, { content: PIECES[i] })]),
    finished(0),
    finished(1),
  ),
  "usage between the pieces": chat(...PIECES.flatMap((content) => [choice(0, { content }), usage]), finished(0)),
  "empty deltas between the pieces": chat(
    ...PIECES.flatMap((content) => [choice(0, { content }), choice(0, { content: "" }), choice(0, {})]),
    finished(0),
  ),
  "another member between the pieces": chat(
    ...PIECES.flatMap((content) => [choice(0, { content }), choice(0, { reasoning_content: "hm" })]),
    finished(0),
  ),
  "reasoning in one piece": chat(choice(0, { reasoning: `ok ${SECRET} end` }), finished(0)),
  "reasoning in pieces": chat(...PIECES.map((reasoning) => choice(0, { reasoning })), finished(0)),
  "reasoning details in pieces": chat(
    ...PIECES.map((text) => choice(0, { reasoning_details: [{ type: "reasoning.text", index: 0, text }] })),
    finished(0),
  ),
  "an unknown member in pieces": chat(...PIECES.map((words) => choice(0, { words })), finished(0)),
  "a refusal in pieces": chat(...PIECES.map((refusal) => choice(0, { refusal })), finished(0)),
  "a transcript in pieces": chat(
    ...PIECES.map((transcript) => choice(0, { audio: { id: "a", transcript } })),
    finished(0),
  ),
  "two tool calls in turn": chat(
    ...PIECES.flatMap((piece) => [choice(0, tool(0, piece)), choice(0, tool(1, piece))]),
    finished(0),
  ),
  "several choices in one event": chat(
    ...PIECES.map((content) => ({
      ...(choice(0, {}) as object),
      choices: [
        { index: 0, delta: { content } },
        { index: 1, delta: { content } },
      ],
    })),
    finished(0),
    finished(1),
  ),
  "log probabilities": chat(
    ...PIECES.map((token) =>
      choice(
        0,
        { content: "x" },
        { logprobs: { content: [{ token, bytes: [1], top_logprobs: [{ token: SECRET }] }] } },
      ),
    ),
    finished(0),
  ),
  "the end without a finish": chat(...PIECES.map((content) => choice(0, { content }))),
};

for (const [what, events] of Object.entries(CHAT_STREAMS))
  test(`chat stream, ${what}: the secret reaches no client [M25]`, async () => {
    const masking = guarded("openAI", "response", "mask", { events });
    const body = { model: "m", stream: true, messages: [{ role: "user", content: "hi" }] };
    const masked = await read(await ask(masking, "/v1/chat/completions", body));
    assert.ok(masked.endsWith("data: [DONE]\n\n"), masked);
    for (const text of channels(masked)) assert.doesNotMatch(text, /secret-\d/);
    if (what !== "log probabilities")
      assert.ok(channels(masked).includes("ok <masked> end"), channels(masked).join("|"));
    if (what === "log probabilities") assert.doesNotMatch(masked, /"token"/);
    const rejecting = guarded("openAI", "response", "reject", { events });
    const rejected = await read(await ask(rejecting, "/v1/chat/completions", body));
    for (const text of channels(rejected)) assert.doesNotMatch(text, /secret-\d/);
    if (what !== "log probabilities") assert.match(rejected, /content_rejected/);
  });

test("a native Anthropic stream with pings between the pieces is guarded per block [M25]", async () => {
  const delta = (index: number, text: string): object => ({
    type: "content_block_delta",
    index,
    delta: { type: "text_delta", text },
  });
  const start = (index: number): object => ({
    type: "content_block_start",
    index,
    content_block: { type: "text", text: "" },
  });
  const events = [
    { type: "message_start", message: { id: "m", type: "message", role: "assistant", model: "c", content: [] } },
    start(0),
    start(1),
    ...PIECES.flatMap((text) => [delta(0, text), { type: "ping" }, delta(1, text)]),
    { type: "content_block_stop", index: 0 },
    { type: "content_block_stop", index: 1 },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 5 } },
    { type: "message_stop" },
  ];
  const base = guarded("anthropic", "response", "mask", { events });
  const body = { model: "c", max_tokens: 9, stream: true, messages: [{ role: "user", content: "hi" }] };
  const text = await read(await ask(base, "/v1/messages", body));
  assert.doesNotMatch(text, /ret-\d|"3 end"/);
  assert.equal(channels(text).filter((one) => one === "ok <masked> end").length, 2);
  // What was held of a block goes out before the block ends.
  assert.ok(text.lastIndexOf('"index":0') === text.lastIndexOf('"index":0', text.indexOf("content_block_stop") + 60));
});

test("a native Responses stream is guarded per item and part, also where events repeat the text [M25]", async () => {
  const delta = (output_index: number, text: string, type = "response.output_text.delta"): object => ({
    type,
    item_id: "i",
    output_index,
    content_index: 0,
    delta: text,
    logprobs: [{ token: SECRET, logprob: 0, top_logprobs: [] }],
  });
  const whole = `ok ${SECRET} end`;
  const item = {
    id: "i",
    type: "message",
    role: "assistant",
    content: [{ type: "output_text", text: whole, logprobs: [{ token: SECRET }] }],
  };
  const events = [
    ...PIECES.flatMap((text) => [
      delta(0, text),
      delta(1, text),
      { type: "response.in_progress", response: { id: "r" } },
      delta(1, text, "response.reasoning_summary_text.delta"),
    ]),
    { type: "response.output_text.done", item_id: "i", output_index: 0, content_index: 0, text: whole },
    {
      type: "response.content_part.done",
      output_index: 0,
      content_index: 0,
      part: { type: "output_text", text: whole },
    },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { id: "r", output: [item], usage: { input_tokens: 1 } } },
  ];
  const base = guarded("openAI", "response", "mask", { events });
  const text = await read(await ask(base, "/v1/responses", { model: "m", stream: true, input: "hi" }));
  const byChannel = new Map<string, string>();
  for (const [, data = ""] of text.matchAll(/^data: (.*)$/gm)) {
    const event = JSON.parse(data) as { type: string; output_index: number; delta?: string };
    const key = `${event.type} ${event.output_index}`;
    if (event.delta !== undefined) byChannel.set(key, (byChannel.get(key) ?? "") + event.delta);
  }
  assert.deepEqual([...byChannel.values()], ["ok <masked> end", "ok <masked> end", "ok <masked> end"]);
  assert.doesNotMatch(text, /secret-123/);
});

test("a stream with ten thousand choices is cut with an error [M25]", async () => {
  const events = chat(...Array.from({ length: 10_000 }, (_, index) => choice(index, { content: "x" })));
  const base = guarded("openAI", "response", "mask", { events });
  const body = { model: "m", stream: true, messages: [{ role: "user", content: "hi" }] };
  const text = await read(await ask(base, "/v1/chat/completions", body));
  assert.match(text, /the response guards cannot read the response/);
  assert.doesNotMatch(text, /DONE/);
});

const message = { role: "assistant", content: `x ${SECRET} y` };
const JSON_ANSWERS: Readonly<Record<string, readonly [path: string, provider: Provider, answer: Answer]>> = {
  "log probabilities": [
    "/v1/chat/completions",
    "openAI",
    { body: { choices: [{ index: 0, message, logprobs: { content: [{ token: SECRET, bytes: [115] }] } }] } },
  ],
  "older completions": [
    "/v1/completions",
    "openAI",
    { body: { choices: [{ index: 0, text: SECRET, logprobs: { tokens: [SECRET] } }] } },
  ],
  "Gemini's log probabilities": [
    "/v1beta/models/m:generateContent",
    "gemini",
    {
      body: {
        candidates: [
          {
            content: { role: "model", parts: [{ text: "sec" }, { text: "ret-123" }] },
            logprobsResult: { chosenCandidates: [{ token: SECRET }] },
          },
        ],
      },
    },
  ],
  "text in two parts": [
    "/v1/messages",
    "anthropic",
    {
      body: {
        type: "message",
        content: [
          { type: "text", text: "a sec" },
          { type: "text", text: "ret-123 b" },
        ],
      },
    },
  ],
  "an error of the provider": [
    "/v1/chat/completions",
    "openAI",
    { status: 400, body: { error: { message: "tool use failed", failed_generation: `x ${SECRET}` } } },
  ],
};
for (const [what, [path, provider, next]] of Object.entries(JSON_ANSWERS))
  test(`a JSON response with ${what}: the secret reaches no client [M25]`, async () => {
    for (const action of ["mask", "reject"]) {
      const base = guarded(provider, "response", action, next);
      const body = {
        model: "m",
        max_tokens: 5,
        prompt: "x",
        contents: [],
        messages: [{ role: "user", content: "hi" }],
      };
      const text = await read(await ask(base, path, body));
      assert.doesNotMatch(text, /secret-1|ret-123/, action);
      assert.match(text, action === "mask" ? /<masked>/ : /rejected/);
    }
  });

const REQUESTS: Readonly<Record<string, readonly [path: string, body: object]>> = {
  "a tool's description": ["chat", { tools: [{ type: "function", function: { name: "f", description: SECRET } }] }],
  "a parameter's description": [
    "chat",
    {
      tools: [
        { type: "function", function: { name: "f", parameters: { properties: { a: { description: SECRET } } } } },
      ],
    },
  ],
  "a parameter's name": [
    "chat",
    { tools: [{ type: "function", function: { name: "f", parameters: { properties: { [SECRET]: {} } } } }] },
  ],
  "the name of a message": ["chat", { messages: [{ role: "user", name: SECRET, content: "x" }] }],
  "a response schema": [
    "chat",
    { response_format: { type: "json_schema", json_schema: { name: "n", schema: { description: SECRET } } } },
  ],
  "a prediction": ["chat", { prediction: { type: "content", content: SECRET } }],
  "template arguments": ["chat", { chat_template_kwargs: { hint: SECRET } }],
  extra_body: ["chat", { extra_body: { messages: [{ role: "user", content: SECRET }] } }],
  "a data URL as text": [
    "chat",
    {
      messages: [
        { role: "user", content: [{ type: "image_url", image_url: { url: `data:text/plain,a%20%73ecret-123` } }] },
      ],
    },
  ],
  "a data URL in base64": [
    "chat",
    {
      messages: [
        {
          role: "user",
          content: [
            {
              type: "image_url",
              image_url: { url: `data:text/plain;base64,${Buffer.from(`my ${SECRET}`).toString("base64")}` },
            },
          ],
        },
      ],
    },
  ],
  "an id with white space": [
    "chat",
    { messages: [{ role: "user", content: [{ type: "text", text: "x", id: `my ${SECRET}` }] }] },
  ],
  "two parts of a message": [
    "chat",
    {
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "a sec" },
            { type: "text", text: "ret-123 b" },
          ],
        },
      ],
    },
  ],
  "three parts of a message": [
    "chat",
    {
      messages: [{ role: "user", content: ["secret", "-", "123"].map((text) => ({ type: "text", text })) }],
    },
  ],
  "a long word that looks like base64": [
    "chat",
    { messages: [{ role: "user", content: `${"A".repeat(12_000)}${SECRET}/${"A".repeat(12_000)}` }] },
  ],
  "the border of two pieces": [
    "chat",
    { messages: [{ role: "user", content: `${"word ".repeat(3276)}${SECRET} ${"word ".repeat(5000)}` }] },
  ],
  "the suffix of a completion": ["completions", { prompt: "x", suffix: SECRET }],
  "the user": ["chat", { user: SECRET }],
  metadata: ["chat", { metadata: { note: SECRET } }],
};
const PATHS: Readonly<Record<string, string>> = { chat: "/v1/chat/completions", completions: "/v1/completions" };
for (const [what, [kind, body]] of Object.entries(REQUESTS))
  test(`a request with a secret in ${what}: the provider does not get it [M26]`, async () => {
    const none: Answer = { body: { choices: [] } };
    const path = PATHS[kind] ?? "";
    const whole = { model: "m", messages: [{ role: "user", content: "hi" }], ...body };
    const masking = guarded("openAI", "request", "mask", none);
    assert.equal((await ask(masking, path, whole)).status, 200);
    const got = sent[0] ?? "";
    const decoded = got.replace(/[A-Za-z0-9+/]{12,}={0,2}/g, (text) => Buffer.from(text, "base64").toString());
    assert.doesNotMatch(
      `${got}\n${decoded}\n${decodeURIComponent(got.replace(/%(?![0-9a-f]{2})/gi, ""))}`,
      /secret-1|ret-123/,
    );
    const rejecting = guarded("openAI", "request", "reject", none);
    assert.equal((await ask(rejecting, path, whole)).status, 403);
    assert.deepEqual(sent, []);
  });

test("a prompt as token numbers is rejected where request guards are set [M26]", async () => {
  const base = guarded("openAI", "request", "mask", { body: {} });
  for (const prompt of [
    [1, 2, 3],
    [[1, 2], [3]],
  ]) {
    const response = await ask(base, "/v1/completions", { model: "m", prompt });
    assert.equal(response.status, 400);
    assert.match(await response.text(), /token numbers/);
  }
  assert.equal((await ask(base, "/v1/embeddings", { model: "m", input: [1, 2] })).status, 400);
  assert.deepEqual(sent, []);
});

test("a stored response that is read again passes the response guards, too [M25]", async () => {
  const output = [{ id: "i", type: "message", content: [{ type: "output_text", text: `my ${SECRET}` }] }];
  const base = guarded("openAI", "response", "mask", { body: { id: "r", object: "response", output } });
  const text = await read(await fetch(`${base}/v1/responses/r`));
  assert.match(text, /my <masked>/);
  assert.doesNotMatch(text, /secret-1/);
});

test("a WebSocket that guards cannot read is rejected [M25]", async () => {
  for (const direction of ["request", "response"]) {
    const base = new URL(guarded("openAI", direction, "mask", {}));
    const status = await new Promise<number | undefined>((resolve, reject) => {
      request({
        host: base.hostname,
        port: base.port,
        path: `${base.pathname}/v1/realtime?model=m`,
        headers: {
          connection: "Upgrade",
          upgrade: "websocket",
          "sec-websocket-version": "13",
          "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        },
      })
        .on("response", (response) => {
          response.resume();
          resolve(response.statusCode);
        })
        .on("upgrade", () => resolve(101))
        .on("error", reject)
        .end();
    });
    assert.equal(status, 400, direction);
    assert.deepEqual(sent, []);
  }
});
