/**
 * Writes complete and streamed OpenAI Responses output from the canonical format.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import type { Members } from "../../json/json.ts";
import type { ParsedTexts } from "../../json/read-json.ts";
import type { Usage } from "../usage/usage.ts";
import { compact, readToolMembers, type Signature, writeSignature } from "./conversation.ts";
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

const TOOL_ARGUMENTS = peerInput("llm-provider/tool-arguments");

export function writeResponsesResponse(response: CompleteResponse, context: TranslationContext): Members {
  const choice = response.choices[0] ?? { parts: [], finish: "stop" as const };
  return responseObject(context, {
    id: `resp_${response.id ?? context.newId()}`,
    model: response.model,
    output: choice.parts.map((part) => writeItem(part, context)),
    finish: choice.finish,
    usage: response.counted,
  });
}

interface ResponseState {
  readonly id: string;
  readonly model: string | undefined;
  readonly output: readonly Members[];
  readonly finish: Finish | undefined;
  readonly usage: Usage | undefined;
}

const INCOMPLETE: Readonly<Partial<Record<Finish, string>>> = { length: "max_output_tokens", filter: "content_filter" };

function responseObject(context: TranslationContext, state: ResponseState): Members {
  const reason = state.finish && INCOMPLETE[state.finish];
  return {
    id: state.id,
    object: "response",
    created_at: context.createdSeconds,
    status: state.finish === undefined ? "in_progress" : reason === undefined ? "completed" : "incomplete",
    background: false,
    error: null,
    incomplete_details: reason === undefined ? null : { reason },
    instructions: null,
    max_output_tokens: null,
    metadata: {},
    model: state.model ?? context.model,
    output: state.output,
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: false,
    temperature: null,
    text: { format: { type: "text" } },
    tool_choice: "auto",
    tools: [],
    top_p: null,
    truncation: "disabled",
    usage: state.usage === undefined ? null : responsesUsage(state.usage),
  };
}

function responsesUsage(usage: Usage): Members {
  return {
    input_tokens: usage.inputTokens,
    input_tokens_details: compact({
      cached_tokens: usage.cachedInputTokens ?? 0,
      cache_write_tokens: usage.cacheCreationInputTokens,
    }),
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens ?? 0 },
    total_tokens: usage.totalTokens,
  };
}

function writeItem(part: ResponsePart, context: TranslationContext): Members {
  switch (part.kind) {
    case "text":
      return messageItem(`msg_${context.newId()}`, part.text);
    case "thought":
      return reasoningItem(`rs_${context.newId()}`, part.text, part.signature);
    case "toolCall":
      return callItem(context, `fc_${context.newId()}`, part.id ?? `call_${context.newId()}`, part.name, part.input);
  }
}

function messageItem(id: string, text: string): Members {
  return { id, type: "message", status: "completed", role: "assistant", content: [outputText(text)] };
}

function outputText(text: string): Members {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

function reasoningItem(id: string, text: string, signature: Signature | undefined): Members {
  return compact({
    id,
    type: "reasoning",
    summary: text === "" ? [] : [{ type: "summary_text", text }],
    encrypted_content: signature && writeSignature(signature, undefined),
  });
}

/** Restores the tool's namespace and unwraps the input of custom tools, which take a string instead of an object. */
function callItem(context: TranslationContext, id: string, callId: string, name: string, input: string): Members {
  const call = { id, call_id: callId, ...context.toolNames.original(name), status: "completed" };
  if (context.toolNames.isCustom(name))
    return { ...call, type: "custom_tool_call", input: unwrapTextInput(input, context) };
  return { ...call, type: "function_call", arguments: input === "" ? "{}" : input };
}

function unwrapTextInput(json: string, parsed: ParsedTexts): string {
  const input = readToolMembers(TOOL_ARGUMENTS, json, parsed)?.input;
  return typeof input === "string" ? input : json;
}

export function openResponsesStream(context: TranslationContext): StreamWriter {
  const writer = new ResponsesWriter(context);
  const tools = new ToolCallSequencer(writer);
  return {
    begin: (id, model) => writer.begin(id, model),
    text(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      writer.text(text);
    },
    thought(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      writer.thought(text);
    },
    signed(choice, signature) {
      if (choice === 0 && !tools.isOpen) writer.sign(signature);
    },
    redacted(choice, signature) {
      if (choice !== 0) return;
      tools.flush();
      writer.close();
      writer.sign(signature);
    },
    toolCall(choice, call, id, name, signature) {
      if (choice === 0) tools.start({ call, id, name, signature });
    },
    toolInput(choice, call, json) {
      if (choice === 0) tools.input(call, json);
    },
    toolEnd(choice, call) {
      if (choice === 0) tools.end(call);
    },
    finish(choice, finish) {
      if (choice === 0) writer.finish = finish;
    },
    usage(counted) {
      writer.usage = counted;
    },
    take: () => writer.take(),
    end() {
      tools.flush();
      writer.done();
    },
    heldChars: () => writer.outputChars + tools.heldChars,
  };
}

interface OpenText {
  readonly kind: "message" | "reasoning";
  readonly id: string;
  text: string;
  signature: Signature | undefined;
}

interface OpenCall {
  readonly kind: "call";
  readonly id: string;
  readonly callId: string;
  readonly name: string;
  input: string;
}

class ResponsesWriter {
  finish: Finish = "stop";
  usage: Usage | undefined = undefined;
  /** The last event repeats the whole output, so it is kept until then. */
  outputChars = 0;
  readonly #context: TranslationContext;
  readonly #output: Members[] = [];
  #out: OutEvent[] = [];
  #sequence = 0;
  #id = "";
  #model: string | undefined;
  #open: OpenText | OpenCall | undefined;

  constructor(context: TranslationContext) {
    this.#context = context;
  }

  begin(id: string | undefined, model: string | undefined): void {
    if (this.#id !== "") return;
    this.#id = `resp_${id ?? this.#context.newId()}`;
    this.#model = model;
    this.#event("response.created", { response: this.#response(undefined) });
    this.#event("response.in_progress", { response: this.#response(undefined) });
  }

  text(text: string): void {
    const open = this.#open?.kind === "message" ? this.#open : this.#addMessage();
    open.text += text;
    this.outputChars += text.length;
    this.#event("response.output_text.delta", {
      item_id: open.id,
      output_index: this.#output.length,
      content_index: 0,
      delta: text,
      logprobs: [],
    });
  }

  thought(text: string): void {
    const open = this.#open?.kind === "reasoning" ? this.#open : this.#addReasoning();
    if (open.text === "")
      this.#event("response.reasoning_summary_part.added", {
        item_id: open.id,
        ...this.#place,
        summary_index: 0,
        part: { type: "summary_text", text: "" },
      });
    open.text += text;
    this.outputChars += text.length;
    this.#event("response.reasoning_summary_text.delta", {
      item_id: open.id,
      output_index: this.#output.length,
      summary_index: 0,
      delta: text,
    });
  }

  /** Adds the signature to the open reasoning item or to a new one, and closes the item. */
  sign(signature: Signature): void {
    const open = this.#open?.kind === "reasoning" ? this.#open : this.#addReasoning();
    open.signature = signature;
    this.close();
  }

  start({ id, name }: OrderedCall): void {
    this.close();
    const open: OpenCall = {
      kind: "call",
      id: `fc_${this.#context.newId()}`,
      callId: id ?? `call_${this.#context.newId()}`,
      name,
      input: "",
    };
    this.#open = open;
    const item = this.#callItem(open);
    const empty = item.type === "function_call" ? { arguments: "" } : { input: "" };
    this.#event("response.output_item.added", { ...this.#place, item: { ...item, ...empty, status: "in_progress" } });
  }

  input(json: string): void {
    if (this.#open?.kind !== "call") return;
    this.#open.input += json;
    this.outputChars += json.length;
    // The input of a custom tool is readable only when it is complete.
    if (this.#context.toolNames.isCustom(this.#open.name)) return;
    const { id } = this.#open;
    const index = this.#output.length;
    this.#event("response.function_call_arguments.delta", { item_id: id, output_index: index, delta: json });
  }

  end(): void {
    this.close();
  }

  close(): void {
    const open = this.#open;
    if (open === undefined) return;
    const at = { item_id: open.id, ...this.#place };
    const item = this.#done(open, at);
    this.#event("response.output_item.done", { ...this.#place, item });
    this.#open = undefined;
    this.#output.push(item);
  }

  done(): void {
    this.close();
    const response = this.#response(this.finish);
    this.#event(response.status === "completed" ? "response.completed" : "response.incomplete", { response });
  }

  take(): readonly OutEvent[] {
    const taken = this.#out;
    this.#out = [];
    return taken;
  }

  get #place(): { output_index: number } {
    return { output_index: this.#output.length };
  }

  #done(open: OpenText | OpenCall, at: Members): Members {
    if (open.kind === "call") return this.#doneCall(open, at);
    if (open.kind === "message") {
      const part = outputText(open.text);
      this.#event("response.output_text.done", { ...at, content_index: 0, text: open.text, logprobs: [] });
      this.#event("response.content_part.done", { ...at, content_index: 0, part });
      return messageItem(open.id, open.text);
    }
    const part = { type: "summary_text", text: open.text };
    if (open.text !== "") {
      this.#event("response.reasoning_summary_text.done", { ...at, summary_index: 0, text: open.text });
      this.#event("response.reasoning_summary_part.done", { ...at, summary_index: 0, part });
    }
    return reasoningItem(open.id, open.text, open.signature);
  }

  #doneCall(open: OpenCall, at: Members): Members {
    const { toolNames } = this.#context;
    if (toolNames.isCustom(open.name)) {
      const input = unwrapTextInput(open.input, this.#context);
      this.#event("response.custom_tool_call_input.delta", { ...at, delta: input });
      this.#event("response.custom_tool_call_input.done", { ...at, input });
    } else {
      const { name } = toolNames.original(open.name);
      this.#event("response.function_call_arguments.done", { ...at, name, arguments: open.input });
    }
    return this.#callItem(open);
  }

  #callItem({ id, callId, name, input }: OpenCall): Members {
    return callItem(this.#context, id, callId, name, input);
  }

  #addMessage(): OpenText {
    const open = this.#add("message", "msg");
    const item = { ...messageItem(open.id, ""), status: "in_progress", content: [] };
    this.#event("response.output_item.added", { ...this.#place, item });
    const at = { item_id: open.id, ...this.#place, content_index: 0 };
    this.#event("response.content_part.added", { ...at, part: outputText("") });
    return open;
  }

  #addReasoning(): OpenText {
    const open = this.#add("reasoning", "rs");
    this.#event("response.output_item.added", { ...this.#place, item: reasoningItem(open.id, "", undefined) });
    return open;
  }

  #add(kind: OpenText["kind"], prefix: string): OpenText {
    this.close();
    const open: OpenText = { kind, id: `${prefix}_${this.#context.newId()}`, text: "", signature: undefined };
    this.#open = open;
    return open;
  }

  #response(finish: Finish | undefined): Members {
    return responseObject(this.#context, {
      id: this.#id,
      model: this.#model,
      output: [...this.#output],
      finish,
      usage: this.usage,
    });
  }

  #event(type: string, data: Members): void {
    this.#out.push({ event: type, data: { type, sequence_number: this.#sequence++, ...data } });
  }
}
