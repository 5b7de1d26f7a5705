/**
 * Translated responses of a hostile provider: their open tool calls are limited, and what the gateway keeps of them is
 * charged to the memory for buffered responses.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const KIB = 1024;
const call = (index: number, json: string) => ({
  choices: [
    { index: 0, delta: { tool_calls: [{ index, id: `c${index}`, function: { name: "f", arguments: json } }] } },
  ],
});

/** A route whose provider answers with `body`. */
async function gatewayWith(t: TestContext, contentType: string, body: string, streamBytes: number) {
  const provider = await backendFor(t, (_req, res) => {
    res.writeHead(200, { "content-type": contentType });
    res.end(body);
  });
  const yaml = `config: { logging: { format: json } }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${provider.host}" } }] }
`;
  const gateway = await gatewayFor(t, yaml, { memoryLimits: { streamBytes } });
  const ask = (stream: boolean) =>
    fetch(`${gateway.url()}/v1/messages`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", max_tokens: 9, stream, messages: [{ role: "user", content: "Hi" }] }),
    });
  return { gateway, ask };
}

const sse = (events: readonly object[]): string => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");

async function readBroken(response: Response): Promise<string> {
  let text = "";
  await assert.rejects(async () => {
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString();
  });
  return text;
}

test("a stream with more than 1,000 open tool calls ends with an error", async (t) => {
  const events = [...new Array(8_000).keys()].map((index) => call(index, '{"a":'));
  const { gateway, ask } = await gatewayWith(t, "text/event-stream", sse(events), KIB * KIB);
  const text = await readBroken(await ask(true));
  assert.match(text, /event: error\ndata: .*more than 1000 open tool calls/);
  await eventually("the log has the error", () => gateway.log().join("").includes("backend_response_invalid"));
});

test("tool calls that wait for another call are charged to the memory for buffered responses", async (t) => {
  const events = [call(0, '{"a":'), ...[...new Array(40).keys()].map(() => call(1, `"${"x".repeat(KIB)}"`))];
  const { gateway, ask } = await gatewayWith(t, "text/event-stream", sse(events), 32 * KIB);
  assert.match(await readBroken(await ask(true)), /event: error/);
  await eventually("the log has the error", () => gateway.log().join("").includes("overloaded"));
});

test("a response that is translated is charged to the memory for buffered responses", async (t) => {
  const body = JSON.stringify({ choices: [{ message: { content: "x".repeat(256 * KIB) }, finish_reason: "stop" }] });
  const small = await gatewayWith(t, "application/json", body, 32 * KIB);
  assert.equal((await small.ask(false)).status, 503);
  const large = await gatewayWith(t, "application/json", body, KIB * KIB);
  for (let i = 0; i < 5; i++) assert.equal((await large.ask(false)).status, 200);
});
