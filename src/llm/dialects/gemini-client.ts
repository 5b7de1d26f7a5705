/**
 * Implements the client side of Gemini's generateContent. Google accepts camelCase and snake_case names.
 */
import { isMembers, type Members, putMember } from "../../json/json.ts";
import type { Usage } from "../usage/usage.ts";
import {
  type ContentPart,
  type Conversation,
  compact,
  type Losses,
  list,
  members,
  NOT_SUPPORTED,
  nonEmptyString,
  optionalList,
  optionalNumber,
  optionalText,
  type Part,
  type ResponseFormat,
  readSettings,
  readSignature,
  type Signature,
  type TextPart,
  type Thinking,
  type Tool,
  type ToolChoice,
  TranslationError,
  type Turn,
  TurnList,
  text,
  writeSignature,
} from "./conversation.ts";
import { parseToolInput } from "./messages-client.ts";
import {
  type CompleteResponse,
  type Finish,
  type OrderedCall,
  type OutEvent,
  type ResponsePart,
  type StreamWriter,
  ToolCallSequencer,
  type TranslationContext,
} from "./translation.ts";

const KNOWN = new Set(["model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"]);
/** Google's safety settings and bookkeeping fields have no equivalent at other providers. */
const WITHOUT_EFFECT = new Set(["safetySettings", "labels", "store"]);
const CONFIG_KNOWN = new Set([
  ...["temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "seed"],
  ...["presencePenalty", "frequencyPenalty", "responseMimeType", "responseSchema", "responseJsonSchema"],
  ...["thinkingConfig", "_responseJsonSchema"],
]);

export function readGeminiRequest(original: Members, { losses }: TranslationContext): Conversation {
  const body = camelCase(original);
  if (body.cachedContent !== undefined && body.cachedContent !== null)
    throw new TranslationError("cachedContent", "a cache that is stored at Google cannot be used by another provider");
  for (const [name, value] of Object.entries(body))
    if (!KNOWN.has(name) && !WITHOUT_EFFECT.has(name) && value !== null) losses.lose(name, value);
  const config = isMembers(body.generationConfig) ? camelCase(body.generationConfig) : {};
  const at = (name: string): string => `generationConfig.${name}`;
  for (const [name, value] of Object.entries(config)) {
    const isText = name === "responseModalities" && JSON.stringify(value) === '["TEXT"]';
    if (!CONFIG_KNOWN.has(name) && !isText && value !== null) losses.lose(at(name), value);
  }
  const number = (name: string, neutral?: number) => {
    const value = optionalNumber(config[name], at(name));
    return { param: at(name), value: value === neutral ? undefined : value };
  };
  return {
    system: readSystemInstruction(body.systemInstruction),
    turns: readContents(isMembers(body.contents) ? [body.contents] : list(body.contents, "contents")),
    tools: readTools(body.tools, losses),
    toolChoice: readToolChoice(body.toolConfig),
    parallelTools: undefined,
    maxTokens: optionalNumber(config.maxOutputTokens, at("maxOutputTokens")),
    stop: optionalList(config.stopSequences, at("stopSequences")).map((one) => text(one, at("stopSequences"))),
    user: undefined,
    thinking: readThinking(config.thinkingConfig),
    format: readFormat(config),
    settings: readSettings({
      temperature: number("temperature"),
      topP: number("topP"),
      topK: number("topK"),
      seed: number("seed"),
      count: number("candidateCount", 1),
      presencePenalty: number("presencePenalty", 0),
      frequencyPenalty: number("frequencyPenalty", 0),
    }),
  };
}

function camelCase(value: Members): Members {
  if (!Object.keys(value).some((name) => name.includes("_", 1))) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name.replace(/(?!^)_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
      member,
    ]),
  );
}

function readTools(value: unknown, losses: Losses): Tool[] {
  return optionalList(value, "tools").flatMap((one, i) => {
    const at = `tools[${i}]`;
    const tool = camelCase(members(one, at));
    for (const [name, member] of Object.entries(tool))
      if (name !== "functionDeclarations" && member !== null) losses.lose(`${at}.${name}`, member);
    return optionalList(tool.functionDeclarations, `${at}.functionDeclarations`).map((declared, j) => {
      const where = `${at}.functionDeclarations[${j}]`;
      const { name, description, parameters, parametersJsonSchema } = camelCase(members(declared, where));
      return {
        name: text(name, `${where}.name`),
        description: optionalText(description, `${where}.description`),
        parameters: isMembers(parametersJsonSchema)
          ? parametersJsonSchema
          : isMembers(parameters)
            ? (jsonSchema(parameters) as Members)
            : { type: "object", properties: {} },
        strict: undefined,
      };
    });
  });
}

/** Converts Google's older schemas, which have uppercase types, numbers as strings, and `nullable`. */
function jsonSchema(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(jsonSchema);
  if (!isMembers(value)) return value;
  const out: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (name === "type" && typeof member === "string") out.type = member.toLowerCase();
    else if (name === "nullable" || name === "propertyOrdering") continue;
    else if (/^(?:min|max)(?:Items|Length|Properties)$/.test(name)) out[name] = Number(member);
    else if (name === "properties" && isMembers(member))
      out[name] = Object.fromEntries(Object.entries(member).map(([key, schema]) => [key, jsonSchema(schema)]));
    else if (name === "enum" || name === "default" || name === "example" || name === "required") out[name] = member;
    else putMember(out, name, jsonSchema(member));
  }
  if (value.nullable === true && typeof out.type === "string") out.type = [out.type, "null"];
  return out;
}

function readToolChoice(value: unknown): ToolChoice | undefined {
  const config = isMembers(value) ? camelCase(value).functionCallingConfig : undefined;
  if (!isMembers(config)) return undefined;
  const { mode, allowedFunctionNames: names } = camelCase(config);
  switch (mode) {
    case "NONE":
      return "none";
    case "ANY":
    case "VALIDATED":
      return Array.isArray(names) && names.length === 1
        ? { name: String(names[0]) }
        : mode === "ANY"
          ? "required"
          : "auto";
    default:
      return undefined;
  }
}

function readThinking(value: unknown): Thinking | undefined {
  if (!isMembers(value)) return undefined;
  const { thinkingBudget, thinkingLevel } = camelCase(value);
  const param = "generationConfig.thinkingConfig";
  const budgetTokens = optionalNumber(thinkingBudget, `${param}.thinkingBudget`);
  const effort = optionalText(thinkingLevel, `${param}.thinkingLevel`)?.toLowerCase();
  if (budgetTokens === -1) return { param, isAdaptive: true };
  return budgetTokens === undefined && effort === undefined ? undefined : { param, budgetTokens, effort };
}

function readFormat(config: Members): ResponseFormat | undefined {
  const param = "generationConfig.responseMimeType";
  const schema = config.responseJsonSchema ?? config._responseJsonSchema ?? config.responseSchema;
  if (isMembers(schema)) return { kind: "schema", param, name: "answer", schema: jsonSchema(schema) as Members };
  return config.responseMimeType === "application/json" ? { kind: "json", param } : undefined;
}

function readSystemInstruction(value: unknown): TextPart[] {
  if (value === undefined || value === null) return [];
  if (typeof value === "string") return value === "" ? [] : [{ kind: "text", text: value }];
  const { parts } = members(value, "systemInstruction");
  return toList(parts, "systemInstruction.parts").map((part, i) => ({
    kind: "text",
    text: text(members(part, `systemInstruction.parts[${i}]`).text, `systemInstruction.parts[${i}].text`),
  }));
}

function readContents(contents: readonly unknown[]): Turn[] {
  const turns = new TurnList();
  const calls = new OpenCalls();
  for (const [i, value] of contents.entries()) {
    const at = `contents[${i}]`;
    const content = members(value, at);
    const role = content.role ?? "user";
    if (role !== "user" && role !== "model" && role !== "function")
      throw new TranslationError(`${at}.role`, "must be user or model");
    const parts = toList(content.parts, `${at}.parts`).flatMap((part, j) =>
      readPart(members(part, `${at}.parts[${j}]`), `${at}.parts[${j}]`, calls),
    );
    turns.add(role === "model" ? "assistant" : "user", parts);
  }
  return turns.turns;
}

interface OpenCall {
  readonly id: string;
  isAnswered: boolean;
}

/** Assigns results to the calls that they answer: by ID or, without one, to the first open call of that name. */
class OpenCalls {
  readonly #byId = new Map<string, CallQueue>();
  readonly #byName = new Map<string, CallQueue>();
  #count = 0;

  called(id: string | undefined, name: string): string {
    const call = { id: id ?? `call_${++this.#count}`, isAnswered: false };
    queueFor(this.#byId, call.id).calls.push(call);
    queueFor(this.#byName, name).calls.push(call);
    return call.id;
  }

  answered(id: string | undefined, name: string): string {
    const queue = id === undefined ? this.#byName.get(name) : this.#byId.get(id);
    return (queue && takeFirst(queue)?.id) ?? id ?? `call_${++this.#count}`;
  }
}

/** The calls before `next` are answered. */
interface CallQueue {
  readonly calls: OpenCall[];
  next: number;
}

function queueFor(queues: Map<string, CallQueue>, key: string): CallQueue {
  let queue = queues.get(key);
  if (queue === undefined) {
    queue = { calls: [], next: 0 };
    queues.set(key, queue);
  }
  return queue;
}

function takeFirst(queue: CallQueue): OpenCall | undefined {
  while (queue.calls[queue.next]?.isAnswered) queue.next += 1;
  const call = queue.calls[queue.next];
  if (call) call.isAnswered = true;
  return call;
}

function readPart(part: Members, at: string, calls: OpenCalls): Part[] {
  const called = part.functionCall ?? part.function_call;
  const result = part.functionResponse ?? part.function_response;
  const signature = readSignature(part.thoughtSignature ?? part.thought_signature, "google");
  if (isMembers(called)) {
    const name = text(called.name, `${at}.functionCall.name`);
    const input = isMembers(called.args) ? called.args : {};
    return [{ kind: "toolCall", id: calls.called(nonEmptyString(called.id), name), name, input, signature }];
  }
  if (isMembers(result)) {
    const name = text(result.name, `${at}.functionResponse.name`);
    const response = isMembers(result.response) ? result.response : {};
    const isError = nonEmptyString(response.error) !== undefined && Object.keys(response).length === 1;
    const seen = result.parts === undefined ? [] : toList(result.parts, `${at}.functionResponse.parts`);
    return [
      {
        kind: "toolResult",
        id: calls.answered(nonEmptyString(result.id), name),
        name,
        parts: [
          { kind: "text", text: resultText(response) },
          ...seen.flatMap((one, i) => readData(members(one, `${at}.functionResponse.parts[${i}]`), at)),
        ],
        isError,
      },
    ];
  }
  if (typeof part.text === "string") {
    if (part.thought !== true) return [{ kind: "text", text: part.text }];
    return signature === undefined ? [] : [{ kind: "thought", text: part.text, signature, isRedacted: false }];
  }
  const data = readData(part, at);
  if (data.length > 0) return data;
  // A part may hold only a signature.
  if (signature !== undefined && Object.keys(part).every((name) => /^thought/.test(name))) return [];
  throw new TranslationError(at, `${JSON.stringify(Object.keys(part)[0] ?? "{}")} ${NOT_SUPPORTED}`);
}

function readData(part: Members, at: string): ContentPart[] {
  const inline = part.inlineData ?? part.inline_data;
  const file = part.fileData ?? part.file_data;
  if (isMembers(inline)) {
    const mediaType = text(inline.mimeType ?? inline.mime_type, `${at}.inlineData.mimeType`);
    const source = { mediaType, data: text(inline.data, `${at}.inlineData.data`) };
    if (mediaType.startsWith("image/")) return [{ kind: "image", source }];
    return [{ kind: "file", source, name: optionalText(inline.displayName, `${at}.inlineData.displayName`) }];
  }
  if (isMembers(file)) {
    const url = text(file.fileUri ?? file.file_uri, `${at}.fileData.fileUri`);
    const type = String(file.mimeType ?? file.mime_type ?? "image/");
    if (!/^https?:/.test(url) || /generativelanguage\.googleapis\.com\/.*\/files\//.test(url))
      throw new TranslationError(
        `${at}.fileData`,
        "a file that is stored at Google cannot be sent to another provider",
      );
    return [
      type.startsWith("image/")
        ? { kind: "image", source: { url } }
        : { kind: "file", source: { url }, name: undefined },
    ];
  }
  return [];
}

/** Google's SDKs wrap a string result as `{output: …}`, `{result: …}`, or `{error: …}`. */
function resultText(response: Members): string {
  const names = Object.keys(response);
  const only = names.length === 1 ? response[names[0] as string] : undefined;
  return typeof only === "string" && /^(?:output|result|error)$/.test(names[0] as string)
    ? only
    : JSON.stringify(response);
}

/** Google's API accepts a single object in place of a list. */
function toList(value: unknown, at: string): readonly unknown[] {
  return isMembers(value) ? [value] : optionalList(value, at);
}

const FINISH: Readonly<Record<Finish, string>> = {
  stop: "STOP",
  length: "MAX_TOKENS",
  toolCalls: "STOP",
  filter: "SAFETY",
};

export function writeGeminiResponse(response: CompleteResponse, context: TranslationContext): Members {
  return compact({
    candidates: response.choices.map(({ parts, finish }, index) => ({
      content: { role: "model", parts: parts.flatMap((part) => writePart(part, context)) },
      finishReason: FINISH[finish],
      index,
    })),
    usageMetadata: usageMetadata(response.counted),
    modelVersion: response.model ?? context.model,
    responseId: response.id ?? context.newId(),
  });
}

function writePart(part: ResponsePart, context: TranslationContext): Members[] {
  switch (part.kind) {
    case "text":
      return [{ text: part.text }];
    case "thought":
      return part.isRedacted ? [] : [thoughtPart(part.text, part.signature)];
    case "toolCall":
      return [callPart(part, part.input, context)];
  }
}

function thoughtPart(text: string, signature: Signature | undefined): Members {
  return compact({ text, thought: true, thoughtSignature: signature && writeSignature(signature, "google") });
}

function callPart(
  { id, name, signature }: Pick<OrderedCall, "id" | "name" | "signature">,
  input: string,
  context: TranslationContext,
): Members {
  return compact({
    functionCall: compact({ id, name, args: parseToolInput(input, context) }),
    thoughtSignature: signature && writeSignature(signature, "google"),
  });
}

/** Gemini counts reasoning separately from the output, and includes cached tokens in the prompt. */
function usageMetadata(usage: Usage | undefined): Members | undefined {
  if (usage === undefined) return undefined;
  return compact({
    promptTokenCount: usage.inputTokens,
    candidatesTokenCount: usage.outputTokens - (usage.reasoningTokens ?? 0),
    totalTokenCount: usage.totalTokens,
    cachedContentTokenCount: usage.cachedInputTokens,
    thoughtsTokenCount: usage.reasoningTokens,
  });
}

export function openGeminiStream(context: TranslationContext): StreamWriter {
  let out: OutEvent[] = [];
  let head: Members = {};
  let begun = false;
  const finishes: Finish[] = [];
  let usage: Usage | undefined;
  const orders = new Map<number, ToolCallSequencer>();
  /** The length of the input of all calls that are being written. */
  let inputChars = 0;
  /** The length of the input of all calls that wait for another call. */
  let queuedChars = 0;

  const write = (choice: number, part: Members): void => {
    out.push({ data: { candidates: [{ content: { role: "model", parts: [part] }, index: choice }], ...head } });
  };
  const sequencerFor = (choice: number): ToolCallSequencer => {
    let order = orders.get(choice);
    if (order === undefined) {
      let current: OrderedCall | undefined;
      let input = "";
      order = new ToolCallSequencer({
        start(call) {
          current = call;
          input = "";
        },
        input(json) {
          input += json;
          inputChars += json.length;
        },
        end() {
          if (current) write(choice, callPart(current, input, context));
          inputChars -= input.length;
        },
      });
      orders.set(choice, order);
    }
    return order;
  };
  const change = (choice: number, action: (order: ToolCallSequencer) => void): void => {
    const order = sequencerFor(choice);
    const before = order.heldChars;
    action(order);
    queuedChars += order.heldChars - before;
  };

  return {
    begin(id, model) {
      if (begun) return;
      begun = true;
      head = { modelVersion: model ?? context.model, responseId: id ?? context.newId() };
    },
    text(choice, text) {
      if (text !== "") write(choice, { text });
    },
    thought(choice, text) {
      if (text !== "") write(choice, thoughtPart(text, undefined));
    },
    signed(choice, signature) {
      write(choice, thoughtPart("", signature));
    },
    redacted() {
      // Gemini has no part for redacted reasoning.
    },
    toolCall: (choice, call, id, name, signature) =>
      change(choice, (order) => order.start({ call, id, name, signature })),
    toolInput: (choice, call, json) => change(choice, (order) => order.input(call, json)),
    toolEnd: (choice, call) => change(choice, (order) => order.end(call)),
    finish(choice, finish) {
      finishes[choice] = finish;
    },
    usage(counted) {
      usage = counted;
    },
    take() {
      const taken = out;
      out = [];
      return taken;
    },
    end() {
      for (const choice of orders.keys()) change(choice, (order) => order.flush());
      const candidates = finishes.map((finish, index) => ({
        content: { role: "model", parts: [{ text: "" }] },
        finishReason: FINISH[finish],
        index,
      }));
      out.push({ data: compact({ candidates, usageMetadata: usageMetadata(usage), ...head }) });
    },
    heldChars: () => inputChars + queuedChars,
  };
}
