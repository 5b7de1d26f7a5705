/**
 * Implements the demo MCP server of the built-in configuration over stdio. It exits when its stdin closes.
 */
import type { Readable } from "node:stream";
import { systemClock, wait } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { readMembers } from "../json/read-json.ts";

const REQUEST = peerInput("demo-client/message");

const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MAX_SLOW_MS = 60_000;

interface Message {
  readonly id?: string | number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

type Arguments = Readonly<Record<string, unknown>>;

interface Tool {
  readonly title: string;
  readonly description: string;
  readonly inputSchema: object;
  run(
    args: Arguments,
    progress: (done: number, total: number) => void,
    isCancelled: () => boolean,
  ): string | Promise<string>;
}

const TOOLS: Readonly<Record<string, Tool>> = {
  echo: {
    title: "Echo",
    description: "Returns the message it was given.",
    inputSchema: object({ message: { type: "string", description: "What to return." } }),
    run: (args) => String(args.message),
  },
  add: {
    title: "Add",
    description: "Adds two numbers.",
    inputSchema: object({ a: { type: "number" }, b: { type: "number" } }),
    run: (args) => String(Number(args.a) + Number(args.b)),
  },
  now: {
    title: "Now",
    description: "Tells the time, in UTC.",
    inputSchema: { type: "object", properties: {} },
    run: () => new Date(systemClock.now()).toISOString(),
  },
  slow: {
    title: "Slow",
    description: "Works for some seconds and reports progress, to try streams and cancellation.",
    inputSchema: {
      type: "object",
      properties: { seconds: { type: "number", description: "How long to work (default 5, at most 60)." } },
    },
    async run(args, progress, isCancelled) {
      const totalMs = Math.min(MAX_SLOW_MS, Math.max(0, Number(args.seconds ?? 5)) * 1000);
      const steps = 10;
      for (let step = 1; step <= steps && !isCancelled(); step++) {
        await wait(systemClock, totalMs / steps);
        progress(step, steps);
      }
      return `worked for ${totalMs / 1000} s`;
    },
  },
};

function serve(input: Readable, write: (line: string) => void): void {
  const cancelled = new Set<unknown>();
  const send = (message: object): void => write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

  const received = (line: string): void => {
    if (line.trim() === "") return;
    const message = parse(line);
    if (message === undefined) send({ id: null, error: { code: -32700, message: "Parse error" } });
    else if (message.method === "notifications/cancelled") cancelled.add(message.params?.requestId);
    else if (message.method !== undefined && message.id !== undefined) {
      void answer(message.id, message.method, message.params ?? {});
    }
  };
  // Only LF ends a message. Node's line reader also splits at U+2028, which can occur inside a string.
  let rest = "";
  input.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) received(line);
  });

  async function answer(id: string | number, method: string, params: Arguments): Promise<void> {
    switch (method) {
      case "initialize":
        send({ id, result: initializeResult(params) });
        return;
      case "ping":
        send({ id, result: {} });
        return;
      case "tools/list":
        send({
          id,
          result: { tools: Object.entries(TOOLS).map(([name, { run: _, ...shown }]) => ({ name, ...shown })) },
        });
        return;
      case "tools/call":
        await callTool(id, params);
        return;
      default:
        send({ id, error: { code: -32601, message: `Method not found: ${method}` } });
    }
  }

  async function callTool(id: string | number, params: Arguments): Promise<void> {
    const tool = TOOLS[String(params.name)];
    if (!tool) {
      send({ id, error: { code: -32602, message: `Unknown tool: ${String(params.name)}` } });
      return;
    }
    const token = (params._meta as { progressToken?: unknown } | undefined)?.progressToken;
    const progress = (done: number, total: number): void => {
      if (token !== undefined)
        send({ method: "notifications/progress", params: { progressToken: token, progress: done, total } });
    };
    const text = await tool.run((params.arguments ?? {}) as Arguments, progress, () => cancelled.has(id));
    // A canceled request gets no response.
    if (!cancelled.delete(id)) send({ id, result: { content: [{ type: "text", text }] } });
  }
}

function parse(line: string): Message | undefined {
  return readMembers(REQUEST, line) as Message | undefined;
}

function initializeResult(params: Arguments): object {
  const asked = String(params.protocolVersion);
  return {
    protocolVersion: VERSIONS.includes(asked) ? asked : VERSIONS[0],
    capabilities: { tools: {} },
    serverInfo: { name: "demo", title: "Demo server of the gateway", version: "1.0.0" },
    instructions: "Tools to try the gateway with: echo, add, now, slow.",
  };
}

function object(properties: Readonly<Record<string, object>>): object {
  return { type: "object", properties, required: Object.keys(properties) };
}

serve(process.stdin, (line) => void process.stdout.write(line));
