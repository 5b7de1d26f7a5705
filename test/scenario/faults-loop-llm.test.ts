/**
 * Very large events in the streams of LLM providers (row R34 of the threat table): guards look at them in turns, what is
 * too complex ends the stream or is not read, and the loop keeps turning for everybody else.
 */
import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { longestTurnMs, turnsOf, WATCHED_TURNS } from "../support/process-turns.ts";

const MAX_TURN_MS = 50;
/** Nearly as large as an event may be. */
const BYTES = 2 * 1024 * 1024 - 1024;
/** Of what a guard finds everywhere: looked at in one turn it would take 150 ms. */
const GUARDED_BYTES = 256 * 1024;

const event = (body: string): string => `data: ${body}\n\n`;
const filled = (before: string, unit: string, after: string, bytes = BYTES): string =>
  event(before + unit.repeat(Math.floor((bytes - before.length - after.length) / unit.length)) + after);
const DELTA = '{"choices":[{"index":0,"delta":{"content":"';
const ADDRESSES = filled(DELTA, "me@example.org or ab12 ", '"}}]}', GUARDED_BYTES);
const OBJECTS = filled('{"choices":[],"x":[', "{},", '{}],"usage":{"prompt_tokens":5,"completion_tokens":7}}');
const LAST = `${event('{"choices":[{"index":0,"delta":{"content":"bye"},"finish_reason":"stop"}]}')}data: [DONE]\n\n`;

const calls: { path: string; stream: string; holds: (text: string) => void }[] = [
  {
    path: "/guarded",
    stream: ADDRESSES + LAST,
    holds(text) {
      assert.ok(!text.includes("me@"));
      assert.ok(text.split("<EMAIL_ADDRESS>").length > 11_000);
      assert.match(text, /bye[\s\S]*\[DONE\]\n\n$/);
    },
  },
  { path: "/guarded", stream: OBJECTS + LAST, holds: (text) => assert.match(text, /cannot read the response/) },
  { path: "/watched", stream: ADDRESSES + LAST, holds: (text) => assert.equal(text, ADDRESSES + LAST) },
  { path: "/plain", stream: OBJECTS + LAST, holds: (text) => assert.equal(text, OBJECTS + LAST) },
  { path: "/translated", stream: OBJECTS + LAST, holds: (text) => assert.match(text, /event: error/) },
];

test(`events of ${BYTES >> 10} KiB in a stream do not hold the loop for ${MAX_TURN_MS} ms [R34]`, {
  timeout: 600_000,
}, async (t) => {
  const provider = createServer((req, res) => {
    const { stream } = calls[Number(req.headers["x-call"])] as (typeof calls)[number];
    req.resume().once("end", () => res.writeHead(200, { "content-type": "text/event-stream" }).end(stream));
  });
  t.after(() => provider.close().closeAllConnections());
  await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
  const hostOverride = `127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const guard = { regex: { action: "mask", rules: [{ builtin: "email" }] } };
  const route = (path: string, policies: object) => ({
    matches: [{ path: { pathPrefix: path } }],
    backends: [{ ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride } }],
    policies,
  });
  const yaml = JSON.stringify({
    config: { adminAddr: "off" },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      route("/guarded", { ai: { promptGuard: { response: [guard] } } }),
      route("/watched", { ai: { promptGuard: { response: [{ ...guard, mode: "shadow" }] } } }),
      route("/plain", {}),
      route("/translated", {}),
    ],
  });
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], { compiled: true, nodeFlags: WATCHED_TURNS });
  const port = await gateway.port();
  const watch = turnsOf(gateway);
  for (const [i, { path, holds }] of calls.entries()) {
    const longestMs = await longestTurnMs(watch, MAX_TURN_MS, async () => holds(await ask(port, path, i)));
    assert.ok(longestMs < MAX_TURN_MS, `${path}, call ${i}: ${longestMs} ms`);
  }
});

/** A stream in OpenAI's dialect, on the translated route in Anthropic's; resolves with what came, also if it broke off. */
function ask(port: number, path: string, call: number): Promise<string> {
  const isTranslated = path === "/translated";
  const target = `${path}/v1/${isTranslated ? "messages" : "chat/completions"}`;
  const body = { model: "m", max_tokens: 9, stream: true, messages: [{ role: "user", content: "hi" }] };
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "x-call": String(call) };
    const outgoing = request({ port, host: "127.0.0.1", path: target, method: "POST", headers }, (res) => {
      const chunks: Buffer[] = [];
      res.on("data", (chunk: Buffer) => chunks.push(chunk));
      res.on("error", () => undefined);
      res.on("close", () => resolve(Buffer.concat(chunks).toString()));
    });
    outgoing.once("error", reject);
    outgoing.end(JSON.stringify(body));
  });
}
