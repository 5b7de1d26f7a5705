/**
 * An Anthropic messages request in the words of OpenAI chat. What chat cannot say is refused by name.
 */
import { isMembers, type Members } from "../wire/json.ts";
import { compact, list, members, optionalNumber, optionalText, text } from "./fields.ts";
import { type TranslationContext, TranslationError } from "./translation.ts";

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

const TOOL_KNOWN = new Set(["type", "name", "description", "input_schema", "strict", "cache_control"]);

export function chatRequestOf(body: Members, context: TranslationContext): Members {
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
  for (const [name, value] of Object.entries(message)) {
    if (name !== "role" && name !== "content" && value !== null)
      throw new TranslationError(`${at}.${name}`, "is not supported by the provider of this model");
  }
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
      if (isMembers(block.citations) && block.citations.enabled === true)
        throw new TranslationError(`${where}.citations`, "are not supported by the provider of this model");
      if (typeof block.context === "string")
        throw new TranslationError(`${where}.context`, "is not supported by the provider of this model");
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
  for (const [name, member] of Object.entries(tool)) {
    if (!TOOL_KNOWN.has(name) && member !== null && (tool.type ?? "custom") === "custom")
      throw new TranslationError(`tools[${i}].${name}`, "is not supported by the provider of this model");
  }
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
