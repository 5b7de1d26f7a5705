/**
 * A legacy MCP server for tests over stdio. Tools trigger its behavior, including invalid behavior such as crashing,
 * stalling and flooding. Arguments: `--name=x`, `--version=2025-03-26`, `--page=2` (items per list page), `--refuse`
 * (fails initialize), `--silent` (never answers initialize), `--greet` (first prints a line that is not JSON),
 * `--stubborn` (ignores the end of stdin and SIGTERM), `--mute` (ignores unknown methods), `--brittle` (exits on unknown
 * methods), `--asked=file` (writes the file on an unknown method), `--opened=file` (writes the file after initialize),
 * `--cancelled=file` (writes the file when a call is cancelled), `--tools=1000` (adds that many tools).
 */
import { writeFileSync } from "node:fs";
import { error, huge, type Message, notify, result, send, sleep, text } from "./odd-lines.ts";

const flags = new Map<string, string>();
for (const arg of process.argv.slice(2)) {
  const [key = "", value = ""] = arg.replace(/^--/, "").split("=");
  flags.set(key, value);
}
const name = flags.get("name") ?? "odd";
const moreTools = Array.from({ length: Number(flags.get("tools") ?? 0) }, (_, i) => `tool-${i}`);
const pageSize = Number(flags.get("page") ?? 0);
const cancelled: unknown[] = [];
const seen: string[] = [];
const subscribed = new Set<string>();
const waiting = new Map<number, (answer: Message) => void>();
let nextQuestion = 0;
let counter = 0;
let logLevel = "";
let initializedCount = 0;

if (flags.has("stubborn")) {
  process.on("SIGTERM", () => undefined);
  setInterval(() => undefined, 1000);
}
if (flags.has("greet")) process.stdout.write("Welcome to the odd server!\n\n{not json\n");

// A message ends wherever some reader of lines ends one: Node's readline also at U+2028, Python's splitlines at U+0085.
let rest = "";
process.stdin.setEncoding("utf8").on("data", (chunk: string) => {
  const lines = (rest + chunk).split(/[\n\r\u0085\u2028\u2029]/);
  rest = lines.pop() ?? "";
  for (const line of lines) received(JSON.parse(line) as Message);
});

function received(message: Message): void {
  if (message.method === undefined) waiting.get(message.id as number)?.(message);
  else if (message.id === undefined) notified(message.method, message.params ?? {});
  else void answer(message.id, message.method, message.params ?? {});
}

function notified(method: string, params: Record<string, unknown>): void {
  seen.push(method);
  if (method === "notifications/cancelled") {
    cancelled.push(params.requestId);
    if (flags.has("cancelled")) writeFileSync(flags.get("cancelled") ?? "", "");
  }
  if (method === "notifications/initialized") initializedCount += 1;
}

async function answer(id: string | number, method: string, params: Record<string, unknown>): Promise<void> {
  switch (method) {
    case "initialize":
      if (flags.has("silent")) return;
      if (flags.has("refuse")) error(id, -32000, "not today");
      else result(id, initializeResult(params));
      if (flags.has("opened")) writeFileSync(flags.get("opened") ?? "", "");
      return;
    case "ping":
      result(id, {});
      return;
    case "tools/list":
      result(
        id,
        page(
          "tools",
          [...TOOL_NAMES, ...moreTools].map((tool) => ({
            name: tool,
            inputSchema: { type: "object", maximum: "BIG" },
          })),
          params,
        ),
      );
      return;
    case "prompts/list":
      result(id, page("prompts", [{ name: "greeting" }, { name: "farewell" }], params));
      return;
    case "resources/list":
      result(
        id,
        page(
          "resources",
          [
            { uri: `test://${name}/a`, name: "a" },
            { uri: `test://${name}/b`, name: "b" },
          ],
          params,
        ),
      );
      return;
    case "resources/templates/list":
      result(id, page("resourceTemplates", [{ uriTemplate: `test://${name}/{id}`, name: "t" }], params));
      return;
    case "prompts/get":
      result(id, {
        messages: [{ role: "user", content: { type: "text", text: `${String(params.name)} from ${name}` } }],
      });
      return;
    case "resources/read":
      result(id, { contents: [{ uri: params.uri, text: `${String(params.uri)} from ${name}` }] });
      return;
    case "resources/subscribe":
      subscribed.add(String(params.uri));
      result(id, {});
      return;
    case "resources/unsubscribe":
      subscribed.delete(String(params.uri));
      result(id, {});
      return;
    case "logging/setLevel":
      logLevel = String(params.level);
      result(id, {});
      return;
    case "completion/complete":
      result(id, { completion: { values: [name] } });
      return;
    case "tools/call":
      await callTool(id, String(params.name), (params.arguments ?? {}) as Record<string, unknown>, params);
      return;
    default:
      if (flags.has("asked")) writeFileSync(flags.get("asked") ?? "", "");
      if (flags.has("brittle")) process.exit(1);
      if (!flags.has("mute")) error(id, -32601, `Method not found: ${method}`);
  }
}

const TOOL_NAMES = [
  "echo",
  "slow",
  "crash",
  "ask",
  "state",
  "big",
  "silent",
  "log",
  "notify",
  "lie",
  "exit-later",
  "stderr",
  "raw",
];

async function callTool(
  id: string | number,
  tool: string,
  args: Record<string, unknown>,
  params: Record<string, unknown>,
): Promise<void> {
  const meta = (params._meta ?? {}) as { progressToken?: unknown };
  switch (tool) {
    case "echo":
      text(id, `${String(args.message ?? "")}`);
      return;
    case "slow": {
      const steps = Number(args.steps ?? 3);
      for (let step = 1; step <= steps; step++) {
        await sleep(Number(args.ms ?? 10) / steps);
        if (meta.progressToken !== undefined)
          notify("notifications/progress", { progressToken: meta.progressToken, progress: step, total: steps });
        // The client has taken the progress before it answers.
        if (args.asks === true) await ask("sampling/createMessage", { messages: [], maxTokens: 1 });
      }
      // The official client loses progress that comes in one breath with the answer.
      await sleep(5);
      text(id, `slow ${String(args.message ?? "")}`);
      return;
    }
    case "crash":
      process.stderr.write("about to crash\n", () => process.kill(process.pid, "SIGKILL"));
      return;
    case "exit-later":
      text(id, "bye");
      setTimeout(() => process.exit(3), 10);
      return;
    case "ask": {
      const reply = await ask(
        String(args.method ?? "sampling/createMessage"),
        (args.params ?? { messages: [] }) as object,
      );
      text(id, JSON.stringify(reply.result ?? reply.error));
      return;
    }
    case "state":
      counter += 1;
      text(
        id,
        JSON.stringify({
          name,
          pid: process.pid,
          counter,
          cancelled,
          seen,
          subscribed: [...subscribed],
          logLevel,
          initializedCount,
          env: Object.keys(process.env).sort(),
          cwd: process.cwd(),
        }),
      );
      return;
    case "huge":
      huge(id, args as { open: string; unit: string; close: string; bytes: number });
      return;
    case "big":
      text(id, "x".repeat(Number(args.bytes ?? 1000)));
      return;
    case "fail":
      result(id, {
        content: [{ type: "text", text: `failed: ${String(args.message ?? process.env.SECRET_KEY)}` }],
        isError: true,
      });
      return;
    case "silent":
      return;
    case "ask-silent":
      await ask("sampling/createMessage", { messages: [] });
      seen.push("the client's input");
      return;
    case "log":
      notify("notifications/message", { level: "info", data: args.message ?? "hello" });
      text(id, "logged");
      return;
    case "notify":
      text(id, "notified");
      setTimeout(() => notify(String(args.method), (args.params ?? {}) as object), Number(args.afterMs ?? 5));
      return;
    case "lie":
      // Answers that nobody asked for, twice the same, and under another type of id.
      result(987654, { lie: true });
      process.stdout.write(`{"jsonrpc":"2.0","id":"${String(id)}","result":{"lie":true}}\n`);
      text(id, "truth");
      text(id, "again");
      return;
    case "stderr":
      process.stderr.write(`${"e".repeat(100)}\n`.repeat(Number(args.lines ?? 10)), () => text(id, "written"));
      return;
    case "withdraw":
      // Asks, and takes the question back at once.
      void ask("sampling/createMessage", {});
      notify("notifications/cancelled", { requestId: nextQuestion - 1, reason: "changed my mind" });
      text(id, "never mind");
      return;
    case "flood":
      for (let i = 1; i <= Number(args.count ?? 10); i++) {
        notify("notifications/progress", {
          progressToken: meta.progressToken,
          progress: i,
          message: "x".repeat(Number(args.bytes ?? 100)),
        });
        if (args.mark !== undefined) writeFileSync(String(args.mark), String(i));
        if (process.stdout.writableNeedDrain) await new Promise((resolve) => process.stdout.once("drain", resolve));
      }
      text(id, "flooded");
      return;
    case "deaf":
      // Reads nothing from now on.
      process.stdin.pause();
      setInterval(() => undefined, 1000);
      text(id, "what?");
      return;
    case "raw":
      process.stdout.write(String(args.line));
      return;
    default:
      error(id, -32602, `Unknown tool: ${tool}`);
  }
}

function initializeResult(params: Record<string, unknown>): object {
  return {
    protocolVersion: flags.get("version") ?? params.protocolVersion,
    capabilities: {
      tools: { listChanged: true },
      prompts: {},
      resources: { subscribe: true },
      logging: {},
      completions: {},
      experimental: { echoedClient: params.clientInfo, echoedCapabilities: params.capabilities },
    },
    serverInfo: { name, title: `The ${name} server`, version: "1.2.3" },
    instructions: `Use ${name} wisely.`,
  };
}

function page(member: string, items: readonly object[], params: Record<string, unknown>): object {
  if (pageSize === 0) return { [member]: items };
  const from = params.cursor === undefined ? 0 : Number(params.cursor);
  const next = from + pageSize;
  return { [member]: items.slice(from, next), ...(next < items.length ? { nextCursor: String(next) } : {}) };
}

function ask(method: string, params: object): Promise<Message> {
  const id = nextQuestion++;
  send({ id, method, params });
  return new Promise((resolve) => waiting.set(id, resolve));
}
