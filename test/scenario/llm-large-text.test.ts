/**
 * Long conversations: many megabytes of text that are translated, edited, or checked by guards, without blocking the loop
 * and within the memory of the body pool.
 */
import assert from "node:assert/strict";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { watchTurns } from "../support/loop-turns.ts";

/** Client and provider of the test share the loop. */
const MAX_LAG_MS = 50;
const MIB = 1024 * 1024;
const EMAIL = "ada@example.com";

let provider: Server;
let gateway: TestGateway;
let received: Buffer[] = [];

before(async () => {
  provider = createServer((req, res) => {
    received = [];
    req.on("data", (chunk: Buffer) => received.push(chunk));
    req.on("end", () => {
      res.writeHead(200, { "content-type": "application/json" });
      res.end(
        JSON.stringify({ content: [], usage: { input_tokens: 1, output_tokens: 1 }, choices: [], candidates: [] }),
      );
    });
  });
  await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(provider.address() as AddressInfo).port}`;
  gateway = await startGateway(`
gateways: { anthropic: { port: 0 }, gemini: { port: 0 }, guarded: { port: 0 } }
routes:
  - { name: anthropic, gateways: anthropic, backends: [{ ai: { provider: { anthropic: {} }, auth: { key: k }, hostOverride: "${host}" } }] }
  - { name: gemini, gateways: gemini, backends: [{ ai: { provider: { gemini: {} }, auth: { key: k }, hostOverride: "${host}" } }] }
  - name: guarded
    gateways: guarded
    policies: { ai: { promptGuard: { request: [{ regex: { action: mask, rules: [{ builtin: email }] } }] } } }
    backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${host}" } }]
`);
});
after(async () => {
  await gateway?.close();
  provider.close();
  provider.closeAllConnections();
});

function conversation(bytes: number, messageBytes: number): Buffer {
  const count = Math.ceil(bytes / messageBytes);
  const line = `const answer = "forty-two";\n\tThe quick brown fox jumps over the lazy dog; see §4. `;
  const text = (i: number): string =>
    `${i}: ${EMAIL} ${line.repeat(Math.ceil(messageBytes / line.length))}`.slice(0, messageBytes);
  const messages = Array.from({ length: count }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: text(i) }));
  return Buffer.from(JSON.stringify({ model: "m", messages }));
}

function send(listener: string, body: Buffer): Promise<number> {
  return new Promise((resolve, reject) => {
    const outgoing = request(
      `${gateway.url(listener)}/v1/chat/completions`,
      { method: "POST", headers: { "content-type": "application/json", "content-length": body.length } },
      (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode ?? 0));
      },
    );
    outgoing.on("error", reject);
    let at = 0;
    const more = (): void => {
      while (at < body.length) {
        const piece = body.subarray(at, at + 65_536);
        at += piece.length;
        if (!outgoing.write(piece)) {
          outgoing.once("drain", more);
          return;
        }
      }
      outgoing.end();
    };
    more();
  });
}

interface Sent {
  readonly messages?: readonly { content: string | readonly { text: string }[] }[];
  readonly contents?: readonly { parts: readonly { text: string }[] }[];
}

function textsSent(): readonly string[] {
  const { messages, contents } = JSON.parse(Buffer.concat(received).toString()) as Sent;
  const parts = contents?.map(({ parts }) => parts) ?? messages?.map(({ content }) => content) ?? [];
  return parts.map((part) => (typeof part === "string" ? part : part.map(({ text }) => text).join("")));
}

const CASES = [
  ["anthropic", 28, 8 * 1024],
  ["gemini", 28, 4 * MIB],
  ["guarded", 8, 8 * 1024],
  ["guarded", 8, 4 * MIB],
] as const;
for (const [listener, size, messageBytes] of CASES) {
  test(`${listener}: ${size} MiB of text in messages of ${messageBytes / 1024} KiB`, async () => {
    const body = conversation(size * MIB, messageBytes);
    const { messages } = JSON.parse(body.toString()) as { messages: readonly { content: string }[] };
    const expected = messages.map(({ content }) =>
      listener === "guarded" ? content.replaceAll(EMAIL, "<EMAIL_ADDRESS>") : content,
    );
    assert.equal(await send(listener, body), 200);
    const sent = textsSent();
    assert.equal(sent.length, expected.length);
    for (const [i, text] of sent.entries()) assert.ok(text === expected[i], `message ${i}`);
    // The best of a few: what else runs on the machine can only add to it.
    let lagMs = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 5 && lagMs > MAX_LAG_MS; attempt++) {
      const turns = watchTurns();
      assert.equal(await send(listener, body), 200);
      turns.stop();
      lagMs = Math.min(lagMs, turns.longestMs());
    }
    assert.ok(lagMs < MAX_LAG_MS, `lag ${lagMs} ms`);
  });
}

test("arguments of tools that are encoded again count against the limit", async () => {
  const call = {
    id: "a",
    type: "function",
    function: { name: "write", arguments: JSON.stringify({ text: "a b ".repeat(MIB) }) },
  };
  const messages = [
    { role: "user", content: "hi" },
    { role: "assistant", tool_calls: [call] },
  ];
  const tool = { role: "tool", tool_call_id: "a", content: "done" };
  const body = Buffer.from(JSON.stringify({ model: "m", messages: [...messages, tool] }));
  assert.equal(await send("anthropic", body), 413);
});
