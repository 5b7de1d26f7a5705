/**
 * A provider for command-line clients in every provider dialect. It rejects fields that the real API does not have.
 * It calls a shell or file tool of the client if the prompt requests it, and reports the tool result.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodeEventStreamMessage } from "./event-stream.ts";

export const SAW_TEXT = "SAW-TEXT";
export const SAW_TOOL = "SAW-TOOL";
export const SAW_IMAGE = "SAW-IMAGE";
/** The output of the client's shell and of its MCP server. The prompt and the calls do not contain it. */
const TOOL_OUTPUTS = ["out-42-put", "slow mcp-call"];

export interface CliProvider {
  readonly host: string;
  /** What it refused. */
  readonly refusals: string[];
  readonly bodies: string[];
  /** The file that it asks clients to look at. */
  imagePath: string;
  close(): Promise<void>;
}

type Json = Record<string, unknown>;
type Dialect = "chat" | "messages" | "gemini" | "converse";

/** The members at the top of a request, as the APIs document them. */
const KNOWN: Readonly<Record<Dialect, ReadonlySet<string>>> = {
  chat: new Set([
    ...["model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens", "max_completion_tokens"],
    ...["temperature", "top_p", "stop", "user", "seed", "n", "reasoning_effort", "response_format", "verbosity"],
    ...["parallel_tool_calls", "presence_penalty", "frequency_penalty", "service_tier", "store", "metadata"],
  ]),
  messages: new Set([
    ...["model", "messages", "system", "max_tokens", "stream", "tools", "tool_choice", "temperature", "top_p", "top_k"],
    ...[
      "stop_sequences",
      "metadata",
      "thinking",
      "output_config",
      "context_management",
      "service_tier",
      "cache_control",
    ],
    ...["anthropic_version", "anthropic_beta"],
  ]),
  gemini: new Set([
    ...["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"],
    ...["labels"],
  ]),
  converse: new Set([
    ...["messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields", "outputConfig"],
  ]),
};

interface Answer {
  readonly text: string;
  readonly call?: { readonly name: string; readonly input: Json };
}

export async function startCliProvider(): Promise<CliProvider> {
  const refusals: string[] = [];
  const bodies: string[] = [];
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const text = Buffer.concat(chunks).toString();
      const path = (req.url ?? "").split("?")[0] ?? "";
      const dialect = dialectOf(path);
      const body = (text === "" ? {} : JSON.parse(text)) as Json;
      bodies.push(`${req.method} ${req.url} ${text}`);
      const unknown = Object.keys(body).find((name) => dialect && !KNOWN[dialect].has(name));
      if (dialect === undefined || req.method !== "POST" || unknown !== undefined) {
        refusals.push(`${req.method} ${path} ${unknown ?? ""}`);
        res.writeHead(unknown === undefined ? 404 : 400, { "content-type": "application/json" });
        res.end(JSON.stringify({ error: { message: `unknown: ${unknown ?? path}`, type: "invalid_request_error" } }));
        return;
      }
      const streams = body.stream === true || /tream/.test(path);
      write(res, dialect, answerTo(text, provider.imagePath), streams);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const provider: CliProvider = {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    refusals,
    bodies,
    imagePath: "",
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return provider;
}

function dialectOf(path: string): Dialect | undefined {
  if (path.endsWith("/chat/completions")) return "chat";
  if (path.endsWith("/messages") || path.includes("awPredict")) return "messages";
  if (path.includes("enerateContent")) return "gemini";
  return path.includes("/converse") ? "converse" : undefined;
}

/** How each client's tools are called; the first that the request defines is used. */
function toolCalls(imagePath: string): { when: string; name: string; input: Json }[] {
  const command = "printf out-%d-put 42";
  return [
    { when: "TOOL", name: "Bash", input: { command, description: "prints" } },
    { when: "TOOL", name: "exec_command", input: { cmd: command } },
    { when: "TOOL", name: "shell_command", input: { command } },
    { when: "TOOL", name: "shell", input: { command: ["bash", "-c", command] } },
    { when: "TOOL", name: "run_shell_command", input: { command, description: "prints" } },
    // The flat name of Codex's tool `slow` in the namespace of its MCP server.
    { when: "MCP", name: "mcp__odd__slow", input: { message: "mcp-call", ms: 1, steps: 1 } },
    { when: "IMAGE", name: "Read", input: { file_path: imagePath } },
    { when: "IMAGE", name: "view_image", input: { path: imagePath } },
    { when: "IMAGE", name: "read_file", input: { file_path: imagePath, absolute_path: imagePath } },
  ];
}

function answerTo(body: string, imagePath: string): Answer {
  const saw = [
    SAW_TEXT,
    ...(TOOL_OUTPUTS.some((one) => body.includes(one)) ? [SAW_TOOL] : []),
    ...(hasImage(body) ? [SAW_IMAGE] : []),
  ];
  const hasResult = /"tool_result"|"role":"tool"|"functionResponse"|"toolResult"/.test(body);
  for (const { when, name, input } of hasResult ? [] : toolCalls(imagePath))
    if (body.includes(`PLEASE-USE-${when}`) && body.includes(`"name":"${name}"`))
      return { text: "", call: { name, input } };
  return { text: saw.join(" ") };
}

/** A PNG in base64 is the model's only if it stands where images stand. */
function hasImage(body: string): boolean {
  return /"image_url"|"type":"image"|"inlineData"|"image":\{"format"/.test(body) && body.includes("iVBORw0KGgo");
}

function write(res: ServerResponse, dialect: Dialect, answer: Answer, streams: boolean): void {
  const { call } = answer;
  const json = JSON.stringify(call?.input ?? {});
  if (dialect === "chat") {
    const tool = call && { index: 0, id: "call_1", type: "function", function: { name: call.name, arguments: json } };
    const said = { role: "assistant", content: call ? null : answer.text, ...(tool ? { tool_calls: [tool] } : {}) };
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const finish = call ? "tool_calls" : "stop";
    const base = { id: "c", created: 1, model: "stand-in" };
    if (!streams)
      end(res, {
        ...base,
        object: "chat.completion",
        choices: [{ index: 0, message: said, finish_reason: finish }],
        usage,
      });
    else
      events(res, [
        ...[said, {}].map((delta, i) =>
          sse({
            ...base,
            object: "chat.completion.chunk",
            choices: [{ index: 0, delta, finish_reason: i === 1 ? finish : null }],
          }),
        ),
        sse({ ...base, object: "chat.completion.chunk", choices: [], usage }),
        "data: [DONE]\n\n",
      ]);
  } else if (dialect === "messages") {
    const block = call
      ? { type: "tool_use", id: "toolu_1", name: call.name, input: call.input }
      : { type: "text", text: answer.text };
    const base = { id: "m", type: "message", role: "assistant", model: "stand-in", stop_sequence: null };
    const usage = { input_tokens: 10, output_tokens: 5 };
    const stop = call ? "tool_use" : "end_turn";
    if (!streams) end(res, { ...base, content: [block], stop_reason: stop, usage });
    else
      events(res, [
        named("message_start", { message: { ...base, content: [], stop_reason: null, usage } }),
        named("content_block_start", {
          index: 0,
          content_block: call ? { ...block, input: {} } : { type: "text", text: "" },
        }),
        named("content_block_delta", {
          index: 0,
          delta: call ? { type: "input_json_delta", partial_json: json } : { type: "text_delta", text: answer.text },
        }),
        named("content_block_stop", { index: 0 }),
        named("message_delta", { delta: { stop_reason: stop }, usage: { output_tokens: 5 } }),
        named("message_stop", {}),
      ]);
  } else if (dialect === "gemini") {
    const part = call ? { functionCall: { name: call.name, args: call.input } } : { text: answer.text };
    const whole = {
      candidates: [{ content: { role: "model", parts: [part] }, finishReason: "STOP", index: 0 }],
      usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
    };
    if (streams) events(res, [sse(whole)]);
    else end(res, whole);
  } else {
    const usage = { inputTokens: 10, outputTokens: 5, totalTokens: 15 };
    const stopReason = call ? "tool_use" : "end_turn";
    const use = call && { toolUseId: "tooluse_1", name: call.name };
    if (!streams) {
      const content = [call ? { toolUse: { ...use, input: call.input } } : { text: answer.text }];
      end(res, { output: { message: { role: "assistant", content } }, stopReason, usage });
      return;
    }
    res.writeHead(200, { "content-type": "application/vnd.amazon.eventstream" });
    const sequence: [string, object][] = [
      ["messageStart", { role: "assistant" }],
      ...(use ? [["contentBlockStart", { contentBlockIndex: 0, start: { toolUse: use } }] as [string, object]] : []),
      [
        "contentBlockDelta",
        { contentBlockIndex: 0, delta: call ? { toolUse: { input: json } } : { text: answer.text } },
      ],
      ["contentBlockStop", { contentBlockIndex: 0 }],
      ["messageStop", { stopReason }],
      ["metadata", { usage }],
    ];
    for (const [type, value] of sequence) res.write(encodeEventStreamMessage(type, value));
    res.end();
  }
}

function end(res: ServerResponse, value: object): void {
  res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function events(res: ServerResponse, all: readonly string[]): void {
  res.writeHead(200, { "content-type": "text/event-stream" }).end(all.join(""));
}

const sse = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
const named = (type: string, value: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
