/**
 * MCP sessions over streamable HTTP: opened, used for a few calls, then deleted or abandoned. Each call has its own
 * answer.
 */
import { WrongAnswer } from "../support/ledger.mjs";
import { ask, askFor, newNonce } from "./ask.mjs";

const VERSION = "2025-06-18";

export const mcpStdio = { name: "mcp stdio", once: (world, random) => session(world, random, "/mcp-stdio") };
export const mcpHttp = { name: "mcp http", once: (world, random) => session(world, random, "/mcp-http") };

async function session(world, random, path) {
  let id = 0;
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const post = (message, expected = 200) =>
    askFor(expected, world, path, {
      method: "POST",
      headers,
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    });
  const opened = await post({
    id: ++id,
    method: "initialize",
    params: { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: "chaos", version: "1" } },
  });
  resultOf(opened.text, id);
  headers["mcp-session-id"] = opened.headers.get("mcp-session-id") ?? "";
  headers["mcp-protocol-version"] = VERSION;
  await post({ method: "notifications/initialized" }, 202);
  for (let calls = random.between(1, 5); calls > 0; calls--) {
    const message = newNonce();
    const params = { name: "echo", arguments: { message } };
    const { text } = await post({ id: ++id, method: "tools/call", params });
    const result = resultOf(text, id);
    if (result.content?.[0]?.text !== message) throw new WrongAnswer(`asked for ${message}, got ${text.slice(0, 300)}`);
  }
  if (random.chance(0.7)) await ask(world, path, { method: "DELETE", headers });
}

/** From JSON or an event stream. An error of the protocol is a failure, an answer to something else is wrong. */
function resultOf(text, id) {
  const data = /^data: (\{.*)$/m.exec(text)?.[1] ?? text;
  const message = JSON.parse(data);
  if (message.error) throw new Error(`error ${message.error.code}: ${message.error.message}`);
  if (message.id !== id) throw new WrongAnswer(`asked with id ${id}, got ${text.slice(0, 300)}`);
  if (message.result?.isError) throw new Error(`tool error: ${data.slice(0, 300)}`);
  return message.result;
}
