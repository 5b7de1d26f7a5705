/**
 * A client that speaks Anthropic's messages and a provider that speaks OpenAI chat.
 */
import { errorMessage } from "../error-shape.ts";
import { isMembers, type Members } from "../json.ts";
import { readUsage, type Usage } from "../usage.ts";
import { compact, list, members, optionalNumber, optionalText, text } from "./fields.ts";
import {
  type OutEvent,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
  TranslationError,
  UpstreamStreamError,
} from "./translation.ts";

const KNOWN = new Set([
  "model",
  "messages",
  "system",
  "max_tokens",
  "stream",
  "temperature",
  "top_p",
  "top_k",
  "stop_sequences",
  "tools",
  "tool_choice",
  "metadata",
  "thinking",
  "output_config",
]);
/** Hints about caching and bookkeeping: they change no answer. */
const WITHOUT_EFFECT = new Set(["cache_control", "service_tier"]);

export const messagesToChat: Translation = { request, response, stream };

function request(body: Members, context: TranslationContext): Members {
  for (const [name, value] of Object.entries(body)) {
    if (!KNOWN.has(name) && !WITHOUT_EFFECT.has(name) && value !== null)
      throw new TranslationError(name, "is not supported by the provider of this model");
  }
  const system = systemText(body.system);
  return compact({
    model: context.model,
    messages: [
      ...(system === "" ? [] : [{ role: "system", content: system }]),
      ...list(body.messages, "messages").flatMap((message, i) =>
        messagesOf(members(message, `messages[${i}]`), `messages[${i}]`),
      ),
    ],
    [context.maxTokensMember]: optionalNumber(body.max_tokens, "max_tokens"),
    temperature: optionalNumber(body.temperature, "temperature"),
    top_p: optionalNumber(body.top_p, "top_p"),
    top_k: optionalNumber(body.top_k, "top_k"),
    stop:
      body.stop_sequences === undefined || body.stop_sequences === null
        ? undefined
        : list(body.stop_sequences, "stop_sequences"),
    tools: body.tools === undefined || body.tools === null ? undefined : list(body.tools, "tools").map(toolOf),
    ...toolChoice(body.tool_choice),
    user: isMembers(body.metadata) ? optionalText(body.metadata.user_id, "metadata.user_id") : undefined,
    ...outputSettings(body),
    stream: context.stream ? true : undefined,
  });
}

function systemText(system: unknown): string {
  if (system === undefined || system === null) return "";
  if (typeof system === "string") return system;
  return list(system, "system")
    .map((block, i) => text(members(block, `system[${i}]`).text, `system[${i}].text`))
    .join("\n\n");
}

/** Results of tools are messages of their own here, before what the user says with them. */
function messagesOf(message: Members, at: string): Members[] {
  const { role, content } = message;
  if (role === "system") return [{ role: "system", content: systemText(content) }];
  if (role !== "user" && role !== "assistant") throw new TranslationError(`${at}.role`, "must be user or assistant");
  if (typeof content === "string") return [{ role, content }];
  const blocks = list(content, `${at}.content`).map((block, i) => ({
    block: members(block, `${at}.content[${i}]`),
    where: `${at}.content[${i}]`,
  }));
  return role === "assistant" ? [assistantMessage(blocks)] : userMessages(blocks);
}

interface Placed {
  readonly block: Members;
  readonly where: string;
}

function assistantMessage(blocks: readonly Placed[]): Members {
  const texts: string[] = [];
  const calls: Members[] = [];
  for (const { block, where } of blocks) {
    if (block.type === "text") texts.push(text(block.text, `${where}.text`));
    else if (block.type === "tool_use") {
      calls.push({
        id: text(block.id, `${where}.id`),
        type: "function",
        function: { name: text(block.name, `${where}.name`), arguments: JSON.stringify(block.input ?? {}) },
      });
    }
    // Earlier thoughts are for the model that signed them; Anthropic leaves them out of later turns too.
    else if (block.type !== "thinking" && block.type !== "redacted_thinking") throw unsupportedBlock(block, where);
  }
  return compact({
    role: "assistant",
    content: texts.length === 0 ? null : texts.join(""),
    tool_calls: calls.length === 0 ? undefined : calls,
  });
}

function userMessages(blocks: readonly Placed[]): Members[] {
  const results: Members[] = [];
  const parts: Members[] = [];
  for (const { block, where } of blocks) {
    if (block.type === "tool_result")
      results.push({
        role: "tool",
        tool_call_id: text(block.tool_use_id, `${where}.tool_use_id`),
        content: resultText(block, where),
      });
    else parts.push(partOf(block, where));
  }
  return [...results, ...(parts.length === 0 ? [] : [{ role: "user", content: parts }])];
}

function partOf(block: Members, where: string): Members {
  switch (block.type) {
    case "text":
      return { type: "text", text: text(block.text, `${where}.text`) };
    case "image":
      return { type: "image_url", image_url: { url: sourceUrl(block, where) } };
    case "document": {
      const source = members(block.source, `${where}.source`);
      if (source.type === "text") return { type: "text", text: text(source.data, `${where}.source.data`) };
      if (source.type !== "base64")
        throw new TranslationError(
          `${where}.source`,
          "only documents with base64 or text content can be sent to the provider of this model",
        );
      return {
        type: "file",
        file: {
          filename: optionalText(block.title, `${where}.title`) ?? "document.pdf",
          file_data: sourceUrl(block, where),
        },
      };
    }
    default:
      throw unsupportedBlock(block, where);
  }
}

function sourceUrl(block: Members, where: string): string {
  const source = members(block.source, `${where}.source`);
  if (source.type === "url") return text(source.url, `${where}.source.url`);
  if (source.type === "base64")
    return `data:${text(source.media_type, `${where}.source.media_type`)};base64,${text(source.data, `${where}.source.data`)}`;
  throw new TranslationError(`${where}.source.type`, "must be base64 or url for the provider of this model");
}

function resultText(block: Members, where: string): string {
  const { content } = block;
  const said =
    content === undefined || content === null
      ? ""
      : typeof content === "string"
        ? content
        : list(content, `${where}.content`)
            .map((value, i) => {
              const inner = members(value, `${where}.content[${i}]`);
              if (inner.type !== "text")
                throw new TranslationError(
                  `${where}.content[${i}].type`,
                  "the result of a tool can only be text for the provider of this model",
                );
              return text(inner.text, `${where}.content[${i}].text`);
            })
            .join("\n");
  // The chat dialect has no mark for a failed tool; the words must carry it.
  return block.is_error === true ? `Error: ${said}` : said;
}

function toolOf(value: unknown, i: number): Members {
  const tool = members(value, `tools[${i}]`);
  if (tool.type !== undefined && tool.type !== null && tool.type !== "custom")
    throw new TranslationError(`tools[${i}].type`, `${JSON.stringify(tool.type)} is a tool of another provider`);
  return {
    type: "function",
    function: compact({
      name: text(tool.name, `tools[${i}].name`),
      description: optionalText(tool.description, `tools[${i}].description`),
      parameters: members(tool.input_schema, `tools[${i}].input_schema`),
      strict: tool.strict === true ? true : undefined,
    }),
  };
}

function toolChoice(value: unknown): Members {
  if (value === undefined || value === null) return {};
  const choice = members(value, "tool_choice");
  const one = choice.disable_parallel_tool_use === true ? { parallel_tool_calls: false } : {};
  switch (choice.type) {
    case "auto":
      return { tool_choice: "auto", ...one };
    case "any":
      return { tool_choice: "required", ...one };
    case "none":
      return { tool_choice: "none" };
    case "tool":
      return { tool_choice: { type: "function", function: { name: text(choice.name, "tool_choice.name") } }, ...one };
    default:
      throw new TranslationError("tool_choice.type", "must be auto, any, tool or none");
  }
}

/** Thoughts are asked for by an effort here, not by a budget. */
function outputSettings(body: Members): Members {
  const output = isMembers(body.output_config) ? body.output_config : {};
  const format = isMembers(output.format) ? output.format : undefined;
  if (format && format.type !== "json_schema")
    throw new TranslationError("output_config.format.type", "must be json_schema");
  return {
    reasoning_effort: optionalText(output.effort, "output_config.effort") ?? effortOf(body.thinking),
    response_format: format && {
      type: "json_schema",
      json_schema: { name: "answer", schema: format.schema, strict: true },
    },
  };
}

function effortOf(thinking: unknown): string | undefined {
  if (!isMembers(thinking) || thinking.type !== "enabled" || typeof thinking.budget_tokens !== "number")
    return undefined;
  return thinking.budget_tokens <= 2048 ? "low" : thinking.budget_tokens <= 16_384 ? "medium" : "high";
}

function unsupportedBlock(block: Members, where: string): TranslationError {
  return new TranslationError(
    `${where}.type`,
    `${JSON.stringify(block.type)} is not supported by the provider of this model`,
  );
}

function response(body: Members, context: TranslationContext): Members {
  const choice = Array.isArray(body.choices) && isMembers(body.choices[0]) ? body.choices[0] : {};
  const message = isMembers(choice.message) ? choice.message : {};
  const content: Members[] = [];
  if (typeof message.reasoning_content === "string" && message.reasoning_content !== "")
    content.push({ type: "thinking", thinking: message.reasoning_content, signature: "" });
  const said = typeof message.content === "string" && message.content !== "" ? message.content : message.refusal;
  if (typeof said === "string" && said !== "") content.push({ type: "text", text: said });
  for (const call of Array.isArray(message.tool_calls) ? message.tool_calls.filter(isMembers) : []) {
    const called = isMembers(call.function) ? call.function : {};
    content.push({
      type: "tool_use",
      id: String(call.id),
      name: String(called.name),
      input: argumentsOf(called.arguments),
    });
  }
  const usage = readUsage(body.usage);
  return {
    id: typeof body.id === "string" ? body.id : `msg_${context.newId()}`,
    type: "message",
    role: "assistant",
    model: typeof body.model === "string" ? body.model : context.model,
    content,
    stop_reason: stopReasonOf(choice.finish_reason),
    stop_sequence: null,
    usage: messagesUsage(usage),
  };
}

/** A model may write arguments that are no JSON; they are handed on as text rather than lost. */
function argumentsOf(value: unknown): Members {
  if (typeof value !== "string" || value.trim() === "") return {};
  try {
    const parsed: unknown = JSON.parse(value);
    return isMembers(parsed) ? parsed : { arguments: parsed };
  } catch {
    return { arguments: value };
  }
}

function stopReasonOf(finish: unknown): string {
  switch (finish) {
    case "length":
      return "max_tokens";
    case "tool_calls":
    case "function_call":
      return "tool_use";
    case "content_filter":
      return "refusal";
    default:
      return "end_turn";
  }
}

/** Here the input leaves out what was cached. */
function messagesUsage(usage: Usage | undefined): Members {
  const cached = usage?.cachedInputTokens ?? 0;
  const written = usage?.cacheCreationInputTokens ?? 0;
  return {
    input_tokens: Math.max(0, (usage?.inputTokens ?? 0) - cached - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    output_tokens: usage?.outputTokens ?? 0,
  };
}

type OpenBlock = "text" | "thinking" | "tool";

function stream(context: TranslationContext): StreamTranslation {
  let begun = false;
  let open: OpenBlock | undefined;
  let index = -1;
  let toolIndex: unknown;
  let stopReason: string | undefined;
  let usage: Usage | undefined;

  const event = (type: string, data: Members): OutEvent => ({ event: type, data: { type, ...data } });
  const close = (): OutEvent[] => {
    if (open === undefined) return [];
    open = undefined;
    return [event("content_block_stop", { index })];
  };
  const start = (kind: OpenBlock, block: Members): OutEvent[] => {
    const closed = close();
    open = kind;
    index += 1;
    return [...closed, event("content_block_start", { index, content_block: block })];
  };
  const delta = (value: Members): OutEvent => event("content_block_delta", { index, delta: value });

  function toolDelta(call: Members): OutEvent[] {
    const called = isMembers(call.function) ? call.function : {};
    const out: OutEvent[] = [];
    // A new index is a new call; servers that leave the index out give each call its id once.
    if (open !== "tool" || call.index !== toolIndex || (typeof call.id === "string" && call.index === undefined)) {
      toolIndex = call.index;
      out.push(
        ...start("tool", {
          type: "tool_use",
          id: typeof call.id === "string" ? call.id : `toolu_${context.newId()}`,
          name: String(called.name ?? ""),
          input: {},
        }),
      );
    }
    if (typeof called.arguments === "string" && called.arguments !== "")
      out.push(delta({ type: "input_json_delta", partial_json: called.arguments }));
    return out;
  }

  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamStreamError(500, errorMessage(data, ""));
      const out: OutEvent[] = [];
      if (!begun) {
        begun = true;
        const message = {
          id: typeof data.id === "string" && data.id !== "" ? data.id : `msg_${context.newId()}`,
          type: "message",
          role: "assistant",
          model: typeof data.model === "string" && data.model !== "" ? data.model : context.model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: messagesUsage(undefined),
        };
        out.push(event("message_start", { message }));
      }
      usage = readUsage(data.usage) ?? usage;
      const choice = Array.isArray(data.choices) && isMembers(data.choices[0]) ? data.choices[0] : undefined;
      const said = choice && isMembers(choice.delta) ? choice.delta : {};
      const thought = said.reasoning_content ?? said.reasoning;
      if (typeof thought === "string" && thought !== "") {
        if (open !== "thinking") out.push(...start("thinking", { type: "thinking", thinking: "", signature: "" }));
        out.push(delta({ type: "thinking_delta", thinking: thought }));
      }
      const words = said.content ?? said.refusal;
      if (typeof words === "string" && words !== "") {
        if (open !== "text") out.push(...start("text", { type: "text", text: "" }));
        out.push(delta({ type: "text_delta", text: words }));
      }
      for (const call of Array.isArray(said.tool_calls) ? said.tool_calls.filter(isMembers) : [])
        out.push(...toolDelta(call));
      if (typeof choice?.finish_reason === "string") stopReason = stopReasonOf(choice.finish_reason);
      return out;
    },
    end() {
      if (stopReason === undefined) throw new UpstreamStreamError(502, "the provider's stream ended early");
      return [
        ...close(),
        event("message_delta", {
          delta: { stop_reason: stopReason, stop_sequence: null },
          usage: messagesUsage(usage),
        }),
        event("message_stop", {}),
      ];
    },
  };
}
