/**
 * Requests of the conformance fixture to its client: input during a call, its state, and prompts.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import { inputRequired, ProtocolError, type ServerContext } from "@modelcontextprotocol/server";
import { image, messages, type Result, resource, text } from "./conformance-content.ts";

const STATE_KEY = "only for tests";

export type Args = Readonly<Record<string, unknown>>;

export const PROMPTS: readonly {
  name: string;
  description: string;
  arguments?: { name: string; description: string; required: boolean }[];
  messages(args: Args, ctx: ServerContext): Result;
}[] = [
  {
    name: "test_simple_prompt",
    description: "A prompt.",
    messages: () => messages(text("This is a simple prompt for testing.")),
  },
  {
    name: "test_prompt_with_arguments",
    description: "A prompt with arguments.",
    arguments: [
      { name: "arg1", description: "First test argument", required: true },
      { name: "arg2", description: "Second test argument", required: true },
    ],
    messages: (args) =>
      messages(text(`Prompt with arguments: arg1='${String(args.arg1)}', arg2='${String(args.arg2)}'`)),
  },
  {
    name: "test_prompt_with_embedded_resource",
    description: "A prompt with a resource.",
    arguments: [{ name: "resourceUri", description: "URI of the resource to embed", required: true }],
    messages: (args) =>
      messages(
        resource(String(args.resourceUri), "text/plain", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
      ),
  },
  {
    name: "test_prompt_with_image",
    description: "A prompt with an image.",
    messages: () => messages(image(), text("Please analyze the image above.")),
  },
  {
    name: "test_input_required_result_prompt",
    description: "A prompt that asks first.",
    messages(_, ctx) {
      const answer = accepted(ctx, "user_context");
      if (answer) return messages(text(`With context: ${String(answer.context)}`));
      return inputRequired({
        inputRequests: { user_context: ask("What context should the prompt use?", { context: { type: "string" } }) },
      });
    },
  },
];

export function withState(ctx: ServerContext, key: string, properties: Result, done: () => Result): Result {
  if (stateOf(ctx) !== undefined && accepted(ctx, key)) return done();
  return inputRequired({ inputRequests: { [key]: ask("Please confirm", properties) }, requestState: seal("waiting") });
}

/** State that passes through the client is sealed: what was changed on the way is refused. */
export function seal(state: string): string {
  return `${state}.${createHmac("sha256", STATE_KEY).update(state).digest("hex")}`;
}

export function stateOf(ctx: ServerContext): string | undefined {
  const raw = ctx.mcpReq.requestState<string>();
  if (raw === undefined) return undefined;
  const state = raw.slice(0, Math.max(0, raw.lastIndexOf(".")));
  const expected = Buffer.from(seal(state));
  const given = Buffer.from(raw);
  if (given.length !== expected.length || !timingSafeEqual(given, expected))
    throw new ProtocolError(-32602, "The request state is not ours");
  return state;
}

export function accepted(ctx: ServerContext, key: string): Record<string, unknown> | undefined {
  const answer = ctx.mcpReq.inputResponses?.[key] as { action?: unknown; content?: unknown } | undefined;
  return answer?.action === "accept" && typeof answer.content === "object" && answer.content !== null
    ? (answer.content as Record<string, unknown>)
    : undefined;
}

export function ask(message: string, properties: Result): never {
  return {
    method: "elicitation/create",
    params: {
      mode: "form",
      message,
      requestedSchema: { type: "object", properties, required: Object.keys(properties) },
    },
  } as never;
}

export function sample(prompt: string, maxTokens: number): never {
  return {
    method: "sampling/createMessage",
    params: { messages: [{ role: "user", content: { type: "text", text: prompt } }], maxTokens },
  } as never;
}
