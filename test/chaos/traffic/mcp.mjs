/**
 * MCP sessions over streamable HTTP: opened, used for a few calls, then deleted or abandoned. Each call has its own
 * answer. A quick machine abandons no more sessions than a slow one: each holds a child until it counts as idle, and
 * more than the limit of children allows would be refused, rightly.
 */
import { IDLE_SECONDS } from "../support/config.mjs";
import { WrongAnswer } from "../support/ledger.mjs";
import { ask, askFor, newNonce } from "./ask.mjs";

const VERSION = "2025-06-18";
/** Far below the limit of children, which also holds those that end slowly. */
const MAX_ABANDONED = 10;
/** Longer than the configuration lets a session be idle, and its child end. */
const ABANDONED_MS = (IDLE_SECONDS + 4) * 1_000;
/** On a busy machine a client may be late; whoever comes later than this may find its session ended. */
const LATE_MS = (IDLE_SECONDS - 1) * 1_000;

export const mcpStdio = { name: "mcp stdio", once: (world, random) => session(world, random, "/mcp-stdio") };
export const mcpHttp = { name: "mcp http", once: (world, random) => session(world, random, "/mcp-http") };

class Late extends Error {}

/** When sessions were abandoned, by path. */
const abandoned = { "/mcp-stdio": [], "/mcp-http": [] };

async function session(world, random, path) {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const failure = await useSession(world, random, path, headers).then(
    () => undefined,
    (error) => error,
  );
  if (failure instanceof Late) return;
  if (headers["mcp-session-id"] !== undefined && !mayAbandon(random, path)) {
    const deleted = ask(world, path, { method: "DELETE", headers });
    await (failure instanceof WrongAnswer ? deleted.catch(() => undefined) : deleted);
  }
  if (failure !== undefined) throw failure;
}

function mayAbandon(random, path) {
  const nowMs = performance.now();
  const recent = abandoned[path].filter((atMs) => nowMs - atMs < ABANDONED_MS);
  abandoned[path] = recent;
  if (random.chance(0.7) || recent.length >= MAX_ABANDONED) return false;
  recent.push(nowMs);
  return true;
}

async function useSession(world, random, path, headers) {
  let id = 0;
  let usedMs = performance.now();
  const post = async (message, expected = 200) => {
    const askedMs = performance.now();
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const answer = await askFor(expected, world, path, { method: "POST", headers, body }).catch((error) => {
      const isLate = performance.now() - usedMs > LATE_MS;
      throw isLate && error.message.includes("Session not found") ? new Late() : error;
    });
    usedMs = askedMs;
    return answer;
  };
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
