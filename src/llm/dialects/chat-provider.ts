/**
 * Implements the provider side of OpenAI's Chat Completions API, including the deviations of compatible servers.
 */
import { isMembers, type Members } from "../../json/json.ts";
import { errorMessage } from "../request/llm-errors.ts";
import {
  type ContentPart,
  type Conversation,
  compact,
  ENDED_EARLY,
  keepSupportedParts,
  nonEmptyString,
  type ResponseFormat,
  readSignature,
  resultText,
  type ToolChoice,
  TranslationError,
  type Turn,
  thinkingEffort,
  toUrl,
  UpstreamResponseError,
  unlessEmpty,
  writeSettings,
} from "./conversation.ts";
import {
  type Finish,
  type ResponseSink,
  readChoiceIndex,
  reportUsage,
  type StreamReader,
  type TranslationContext,
} from "./translation.ts";

/** OpenAI's highest effort level is `xhigh`. */
const EFFORT_NAMES: Readonly<Record<string, string>> = { max: "xhigh" };

export function writeChatRequest(conversation: Conversation, context: TranslationContext): Members {
  const { chat, losses } = context;
  const system = conversation.system.map(({ text }) => text).join("\n\n");
  const effort = conversation.thinking && thinkingEffort(conversation.thinking);
  return compact({
    model: context.model,
    messages: [
      ...(system === "" ? [] : [{ role: "system", content: system }]),
      ...keepSupportedParts(conversation.turns, ({ kind }) => kind !== "thought").flatMap(writeMessages),
    ],
    [chat.maxTokens]: conversation.maxTokens,
    stop: unlessEmpty(conversation.stop),
    tools: unlessEmpty(
      conversation.tools.map(({ name, description, parameters, strict }) => ({
        type: "function",
        function: compact({ name, description, parameters, strict: strict === true ? true : undefined }),
      })),
    ),
    tool_choice: conversation.toolChoice && toolChoice(conversation.toolChoice, chat.required),
    parallel_tool_calls: conversation.parallelTools === false && conversation.tools.length > 0 ? false : undefined,
    user: chat.user ? conversation.user : undefined,
    reasoning_effort: effort === undefined ? undefined : (EFFORT_NAMES[effort] ?? effort),
    response_format: conversation.format && responseFormat(conversation.format),
    ...writeSettings(
      conversation.settings,
      {
        temperature: "temperature",
        topP: "top_p",
        ...(chat.topK ? { topK: "top_k" } : {}),
        seed: chat.seed,
        count: "n",
        presencePenalty: "presence_penalty",
        frequencyPenalty: "frequency_penalty",
        verbosity: "verbosity",
        serviceTier: "service_tier",
      },
      losses,
    ),
    stream: context.stream ? true : undefined,
  });
}

function writeMessages({ role, parts }: Turn): Members[] {
  return role === "assistant" ? [assistantMessage(parts)] : userMessages(parts);
}

function assistantMessage(parts: Turn["parts"]): Members {
  const texts: string[] = [];
  const calls: Members[] = [];
  for (const part of parts) {
    if (part.kind === "text") texts.push(part.text);
    else if (part.kind === "toolCall")
      calls.push({
        id: part.id,
        type: "function",
        function: { name: part.name, arguments: JSON.stringify(part.input) },
      });
    else if (part.kind !== "thought")
      throw new TranslationError(
        "messages",
        "an assistant's message can only hold text for the provider of this model",
      );
  }
  return compact({
    role: "assistant",
    content: texts.length === 0 ? null : texts.join(""),
    tool_calls: unlessEmpty(calls),
  });
}

/** Tool results are separate messages before the user's content, and they can hold only text. */
function userMessages(parts: Turn["parts"]): Members[] {
  const results: Members[] = [];
  const content: Members[] = [];
  for (const part of parts) {
    if (part.kind === "toolResult") {
      results.push({ role: "tool", tool_call_id: part.id, content: resultText(part, false) });
      const seen = part.parts.filter(({ kind }) => kind !== "text");
      if (seen.length > 0) content.push({ type: "text", text: `Of the result of the tool call ${part.id}:` });
      content.push(...seen.map(writeContent));
    } else if (part.kind !== "toolCall" && part.kind !== "thought") content.push(writeContent(part));
  }
  const only = content.length === 1 && content[0]?.type === "text" ? content[0].text : undefined;
  return [...results, ...(content.length === 0 ? [] : [{ role: "user", content: only ?? content }])];
}

function writeContent(part: ContentPart): Members {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text };
    case "image":
      return { type: "image_url", image_url: { url: toUrl(part.source) } };
    case "file":
      if ("url" in part.source)
        throw new TranslationError("messages", "the provider of this model takes files only with their content");
      if (part.source.mediaType.startsWith("audio/"))
        return {
          type: "input_audio",
          input_audio: { data: part.source.data, format: part.source.mediaType.includes("wav") ? "wav" : "mp3" },
        };
      return { type: "file", file: { filename: part.name ?? "document.pdf", file_data: toUrl(part.source) } };
  }
}

function toolChoice(choice: ToolChoice, required: string): unknown {
  if (typeof choice === "object") return { type: "function", function: { name: choice.name } };
  return choice === "required" ? required : choice;
}

function responseFormat(format: ResponseFormat): Members {
  if (format.kind === "json") return { type: "json_object" };
  return { type: "json_schema", json_schema: { name: format.name, schema: format.schema, strict: true } };
}

export function readChatResponse(body: Members, sink: ResponseSink): void {
  const choices = Array.isArray(body.choices) ? body.choices.filter(isMembers) : [];
  if (choices.length === 0) throw new UpstreamResponseError(502, "the provider's response has no choices");
  sink.begin(nonEmptyString(body.id), nonEmptyString(body.model));
  for (const [at, choice] of choices.entries()) {
    const message = isMembers(choice.message) ? choice.message : {};
    readOutput(message, at, sink);
    const calls = Array.isArray(message.tool_calls) ? message.tool_calls.filter(isMembers) : [];
    for (const [call, one] of calls.entries()) {
      const called = isMembers(one.function) ? one.function : {};
      sink.toolCall(at, call, nonEmptyString(one.id), String(called.name ?? ""), googleSignature(one));
      sink.toolInput(at, call, toJsonArguments(called.arguments));
      sink.toolEnd(at, call);
    }
    sink.finish(at, readFinish(choice.finish_reason, calls.length > 0));
  }
  reportUsage(body.usage, sink);
}

export function openChatReader(sink: ResponseSink): StreamReader {
  const calls = new Map<number, KnownCalls>();
  const finished = new Map<number, Finish>();

  function toolDelta(choice: number, delta: Members): void {
    let known = calls.get(choice);
    if (known === undefined) {
      known = new KnownCalls();
      calls.set(choice, known);
    }
    const called = isMembers(delta.function) ? delta.function : {};
    const { call, isNew } = known.find(delta);
    if (isNew) sink.toolCall(choice, call, nonEmptyString(delta.id), String(called.name ?? ""), googleSignature(delta));
    const json = toJsonArguments(called.arguments);
    if (json !== "") sink.toolInput(choice, call, json);
  }

  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamResponseError(500, errorMessage(data, ""));
      sink.begin(nonEmptyString(data.id), nonEmptyString(data.model));
      reportUsage(data.usage, sink);
      if (!Array.isArray(data.choices)) return;
      for (const choice of data.choices) {
        if (!isMembers(choice)) continue;
        const at = readChoiceIndex(choice.index);
        if (isMembers(choice.delta)) {
          readOutput(choice.delta, at, sink);
          if (Array.isArray(choice.delta.tool_calls))
            for (const call of choice.delta.tool_calls) if (isMembers(call)) toolDelta(at, call);
        }
        if (typeof choice.finish_reason === "string") finished.set(at, readFinish(choice.finish_reason, calls.has(at)));
      }
    },
    end() {
      if (!finished.has(0)) throw new UpstreamResponseError(502, ENDED_EARLY);
      for (const [choice, finish] of finished) {
        const count = calls.get(choice)?.count ?? 0;
        for (let call = 0; call < count; call++) sink.toolEnd(choice, call);
        sink.finish(choice, finish);
      }
    },
  };
}

/** The tool calls of one choice. Their fragments name them by index, by ID, by both, or not at all. */
class KnownCalls {
  count = 0;
  readonly #ids: (string | undefined)[] = [];
  readonly #byIndex = new Map<unknown, number>();
  readonly #byId = new Map<string, number>();

  /** Returns the number of the call that a fragment extends or starts. */
  find({ index, id }: Members): { readonly call: number; readonly isNew: boolean } {
    const named = nonEmptyString(id);
    const known = this.#known(index, named);
    if (known !== undefined) return { call: known, isNew: false };
    const call = this.count++;
    this.#ids.push(named);
    if (index !== undefined && index !== null) this.#byIndex.set(index, call);
    if (named !== undefined) this.#byId.set(named, call);
    return { call, isNew: true };
  }

  #known(index: unknown, id: string | undefined): number | undefined {
    if (index === undefined || index === null) {
      if (id !== undefined) return this.#byId.get(id);
      // Without an index, a fragment without an ID extends the last call.
      return this.count === 0 ? undefined : this.count - 1;
    }
    const call = this.#byIndex.get(index);
    if (call === undefined || id === undefined) return call;
    // Some servers number all calls 0.
    const otherId = this.#ids[call];
    return otherId === undefined || otherId === id ? call : undefined;
  }
}

function readOutput(message: Members, choice: number, sink: ResponseSink): void {
  const thought = message.reasoning_content ?? message.reasoning;
  if (typeof thought === "string" && thought !== "") sink.thought(choice, thought);
  const words = message.content;
  if (typeof words === "string") {
    if (words !== "") sink.text(choice, words);
  } else if (Array.isArray(words)) for (const part of words) readPart(part, choice, sink);
  if (typeof message.refusal === "string" && message.refusal !== "") sink.text(choice, message.refusal);
}

/** Mistral's reasoning models return a list of parts. */
function readPart(part: unknown, choice: number, sink: ResponseSink): void {
  if (!isMembers(part)) return;
  if (part.type === "thinking") {
    for (const inner of Array.isArray(part.thinking) ? part.thinking : [part.thinking])
      sink.thought(choice, isMembers(inner) ? String(inner.text ?? "") : String(inner ?? ""));
  } else if (typeof part.text === "string") sink.text(choice, part.text);
  else if (part.type !== "reference")
    throw new UpstreamResponseError(
      502,
      `the provider's response holds ${JSON.stringify(part.type)}, which cannot be translated`,
    );
}

/** Some servers write the arguments as an object. */
function toJsonArguments(value: unknown): string {
  return typeof value === "string" ? value : isMembers(value) ? JSON.stringify(value) : "";
}

function googleSignature(call: Members) {
  const google = isMembers(call.extra_content) ? call.extra_content.google : undefined;
  return isMembers(google) ? readSignature(google.thought_signature, "google") : undefined;
}

function readFinish(reason: unknown, hasCalls: boolean): Finish {
  switch (reason) {
    case "length":
    case "model_length":
      return "length";
    case "content_filter":
      return "filter";
    default:
      return hasCalls ? "toolCalls" : "stop";
  }
}
