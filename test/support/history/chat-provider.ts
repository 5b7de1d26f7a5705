/**
 * An LLM provider whose models behave differently: `flaky` fails once per two calls, `broken` always fails, and the
 * stream of `endless` stays open until the client leaves. Other calls use 7 input and 3 output tokens.
 */
import type { TestContext } from "node:test";
import type { TestBackend } from "../backend.ts";
import { backendFor } from "../scenario.ts";

export const TOKENS_PER_CALL = 10;

export function startChatProvider(t: TestContext): Promise<TestBackend> {
  let calls = 0;
  return backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += String(chunk);
    });
    request.on("end", () => {
      const { model, stream } = JSON.parse(text) as { model: string; stream?: boolean };
      calls += 1;
      // Every second call of this model fails once, and the gateway retries it.
      if (model === "flaky" && calls % 2 === 1) {
        response.writeHead(503, { "content-type": "application/json" }).end('{"error":{"message":"busy"}}');
        return;
      }
      if (model === "broken") {
        response.writeHead(500, { "content-type": "application/json" }).end('{"error":{"message":"broken"}}');
        return;
      }
      const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
      if (stream !== true) {
        const choices = [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }];
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ id: "1", object: "chat.completion", model, choices, usage }));
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = { id: "1", object: "chat.completion.chunk", model };
      response.write(`data: ${JSON.stringify({ ...chunk, choices: [{ index: 0, delta: { content: "a" } }] })}\n\n`);
      // The stream of this model stays open until the client leaves.
      if (model === "endless") return;
      response.write(`data: ${JSON.stringify({ ...chunk, choices: [], usage })}\n\n`);
      response.end("data: [DONE]\n\n");
    });
  });
}
