/**
 * The servers behind the gateway in the test of all views: an HTTP server, two LLM providers, and an MCP server in this
 * process and over stdio. A request says in its body or path how they respond, and they count what they served.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { backendFor } from "../scenario.ts";

/** Part of the text of an LLM request. `first` and `second` select what each provider does. */
export interface Plan {
  readonly id: string;
  readonly input: number;
  readonly output: number;
  readonly first?: Behavior;
  readonly second?: Behavior;
  readonly text?: string;
}

/** A number is an error status. `flaky` responds with 503 once, and `cut` breaks the response off. */
export type Behavior = "ok" | "hang" | "endless" | "cut" | "flaky" | number;

/** By the ID of the request. */
export interface Served {
  readonly calls: Map<string, number>;
  /** The tokens that a provider reported. */
  readonly tokens: Map<string, readonly [input: number, output: number]>;
}

export interface Servers {
  readonly http: string;
  readonly first: string;
  readonly second: string;
  readonly mcpUrl: string;
  /** The source of the same MCP server for stdio. */
  readonly mcpSource: string;
  readonly served: Served;
  /** Resolves when a server has received the request. */
  arrived(id: string): Promise<void>;
}

/** Uses nothing outside of itself, because the server over stdio runs its source. `wait` never answers. */
function answerMcp({ id, method, params = {} }: Message): object | undefined {
  if (id === undefined) return undefined;
  const reply = (result: object): object => ({ jsonrpc: "2.0", id, result });
  if (method === "initialize") {
    const serverInfo = { name: "tools", version: "1" };
    return reply({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo });
  }
  const names = ["echo", "tool_error", "rpc_error", "wait", "secret"];
  if (method === "tools/list")
    return reply({ tools: names.map((name) => ({ name, inputSchema: { type: "object" } })) });
  if (method !== "tools/call") return { jsonrpc: "2.0", id, error: { code: -32601, message: "no such method" } };
  if (params.name === "wait") return undefined;
  if (params.name === "rpc_error") return { jsonrpc: "2.0", id, error: { code: -32000, message: "the tool failed" } };
  if (!names.includes(params.name ?? ""))
    return { jsonrpc: "2.0", id, error: { code: -32602, message: "unknown tool" } };
  const content = [{ type: "text", text: "done" }];
  return reply(params.name === "tool_error" ? { content, isError: true } : { content });
}

const MCP_SOURCE = `const answer = ${String(answerMcp)};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const message = answer(JSON.parse(line));
  if (message) process.stdout.write(JSON.stringify(message) + "\\n");
});`;

interface Message {
  readonly id?: unknown;
  readonly method: string;
  readonly params?: {
    readonly name?: string;
    readonly protocolVersion?: string;
    readonly arguments?: { readonly id?: string };
  };
}

export async function startServers(t: TestContext): Promise<Servers> {
  const served: Served = { calls: new Map(), tokens: new Map() };
  const waiting = new Map<string, () => void>();
  const count = (id: string): number => {
    const calls = (served.calls.get(id) ?? 0) + 1;
    served.calls.set(id, calls);
    waiting.get(id)?.();
    waiting.delete(id);
    return calls;
  };

  const http = await backendFor(t, (request, response) => {
    request.resume();
    request.on("end", () => {
      const url = new URL(request.url ?? "", "http://backend");
      const id = url.searchParams.get("id") ?? "";
      respond(response, count(id), url.searchParams.get("do") ?? "ok");
    });
  });
  const provider = (which: "first" | "second") =>
    backendFor(t, async (request, response) => {
      const body = JSON.parse(await textOf(request)) as ChatBody;
      const plan = planIn(body);
      const calls = count(plan.id);
      const behavior = plan[which] ?? "ok";
      if (chat(response, body, plan, behavior, calls)) served.tokens.set(plan.id, [plan.input, plan.output]);
    });
  const mcp = await backendFor(t, async (request, response) => {
    const message = JSON.parse((await textOf(request)) || "{}") as Message;
    const id = message.params?.arguments?.id;
    if (id !== undefined) count(id);
    if (request.method !== "POST") return void response.writeHead(405).end();
    const reply = answerMcp(message);
    if (message.method === "initialize") response.setHeader("mcp-session-id", "one");
    if (message.id === undefined) response.writeHead(202).end();
    else if (reply !== undefined)
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(reply));
  });
  return {
    http: http.host,
    first: (await provider("first")).host,
    second: (await provider("second")).host,
    mcpUrl: `http://${mcp.host}/mcp`,
    mcpSource: MCP_SOURCE,
    served,
    arrived: (id) =>
      new Promise((resolve) => {
        if (served.calls.has(id)) resolve();
        else waiting.set(id, resolve);
      }),
  };
}

function respond(response: ServerResponse, calls: number, behavior: string): void {
  if (behavior === "hang") return;
  if (behavior === "ok" || (behavior === "flaky" && calls > 1)) {
    response.end("fine");
    return;
  }
  if (behavior === "endless" || behavior === "cut") {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write("the first part");
    if (behavior === "cut") setImmediate(() => response.destroy());
    return;
  }
  response.writeHead(behavior === "flaky" ? 503 : Number(behavior)).end("no");
}

interface ChatBody {
  readonly model: string;
  readonly stream?: boolean;
  readonly input?: string;
  readonly messages?: readonly { readonly content: string }[];
}

/** Returns true if usage was reported. */
function chat(response: ServerResponse, body: ChatBody, plan: Plan, behavior: Behavior, calls: number): boolean {
  if (behavior === "hang") return false;
  const status = behavior === "flaky" ? (calls === 1 ? 503 : 200) : typeof behavior === "number" ? behavior : 200;
  if (status !== 200) {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: `status ${status}`, type: "test" } }));
    return false;
  }
  const { model, stream } = body;
  const { input, output, text: content = "fine" } = plan;
  const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
  if (stream === true) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = { id: "1", object: "chat.completion.chunk", model };
    response.write(`data: ${JSON.stringify({ ...chunk, choices: [{ index: 0, delta: { content } }] })}\n\n`);
    if (behavior === "endless") return false;
    if (behavior === "cut") {
      setImmediate(() => response.destroy());
      return false;
    }
    response.write(`data: ${JSON.stringify({ ...chunk, choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
    return true;
  }
  const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
  response.writeHead(200, { "content-type": "application/json" });
  response.end(
    JSON.stringify(
      body.input === undefined
        ? { id: "1", object: "chat.completion", model, choices, usage }
        : {
            object: "list",
            model,
            data: [{ object: "embedding", index: 0, embedding: [0.5] }],
            usage: { prompt_tokens: input, total_tokens: input },
          },
    ),
  );
  return true;
}

function planIn({ input, messages }: ChatBody): Plan {
  return JSON.parse(input ?? messages?.at(-1)?.content ?? "{}") as Plan;
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
