/**
 * The tools, prompts and resources that the official conformance suite expects of a server, for both protocol
 * versions, based on the official SDK.
 */
import {
  inputRequired,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import {
  content,
  DEFAULTS,
  ENUMS,
  image,
  RESOURCES,
  type Result,
  readResource,
  resource,
  SCHEMA_2020_12,
  text,
  WAV,
} from "./conformance-content.ts";
import { capabilities, type FeatureEnv, inputTools, type Tool } from "./conformance-inputs.ts";
import { accepted, ask, PROMPTS, sample } from "./conformance-questions.ts";

export function createFeatureServer(env: FeatureEnv): Server {
  const tools = toolsOf(env);
  const server = new Server(
    { name: "conformance-fixture", version: "1.0.0" },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        logging: {},
        completions: {},
      },
    },
  );
  server.setRequestHandler("tools/list", () => ({
    tools: Object.entries(tools).map(([name, { description, inputSchema }]) => ({
      name,
      description,
      inputSchema: { type: "object" as const, ...inputSchema },
    })),
  }));
  server.setRequestHandler("tools/call", async (request, ctx) => {
    const tool = tools[request.params.name];
    if (!tool) throw new ProtocolError(-32602, `Unknown tool: ${request.params.name}`);
    return (await tool.run(request.params.arguments ?? {}, ctx)) as never;
  });
  server.setRequestHandler("prompts/list", () => ({ prompts: PROMPTS.map(({ messages: _, ...prompt }) => prompt) }));
  server.setRequestHandler("prompts/get", (request, ctx) => {
    const prompt = PROMPTS.find(({ name }) => name === request.params.name);
    if (!prompt) throw new ProtocolError(-32602, `Unknown prompt: ${request.params.name}`);
    return prompt.messages(request.params.arguments ?? {}, ctx) as never;
  });
  server.setRequestHandler("resources/list", () => ({
    resources: RESOURCES.map(({ contents: _, ...resource }) => resource),
  }));
  server.setRequestHandler("resources/templates/list", () => ({
    resourceTemplates: [
      {
        uriTemplate: "test://template/{id}/data",
        name: "template",
        description: "A template",
        mimeType: "application/json",
      },
    ],
  }));
  server.setRequestHandler("resources/read", (request) => readResource(request.params.uri) as never);
  server.setRequestHandler("completion/complete", () => ({
    completion: { values: ["paris", "park", "party"], total: 3, hasMore: false },
  }));
  if (env.era === "legacy") {
    server.setRequestHandler("resources/subscribe", () => ({}));
    server.setRequestHandler("resources/unsubscribe", () => ({}));
  }
  return server;
}

function toolsOf(env: FeatureEnv): Record<string, Tool> {
  return {
    test_simple_text: {
      description: "Returns text.",
      run: () => content(text("This is a simple text response for testing.")),
    },
    test_image_content: { description: "Returns an image.", run: () => content(image()) },
    test_audio_content: {
      description: "Returns sound.",
      run: () => content({ type: "audio", data: WAV, mimeType: "audio/wav" }),
    },
    test_embedded_resource: {
      description: "Returns a resource.",
      run: () => content(resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    },
    test_multiple_content_types: {
      description: "Returns content of several types.",
      run: () =>
        content(
          text("Multiple content types test:"),
          image(),
          resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    },
    test_tool_with_logging: { description: "Logs while it works.", run: (_, ctx) => logging(ctx) },
    test_logging_tool: { description: "Logs while it works.", run: (_, ctx) => logging(ctx, 5) },
    test_error_handling: {
      description: "Always fails.",
      run: () => ({ ...content(text("This tool intentionally returns an error for testing")), isError: true }),
    },
    test_tool_with_progress: { description: "Reports progress.", run: (_, ctx) => progress(ctx) },
    test_reconnection: {
      description: "Closes its stream in the middle.",
      async run(_, ctx) {
        ctx.http?.closeSSE?.();
        await sleep(200);
        return content(text("Reconnection test completed"));
      },
    },
    test_sampling: {
      description: "Asks the client's model.",
      inputSchema: { properties: { prompt: { type: "string" } }, required: ["prompt"] },
      async run(args, ctx) {
        const request = {
          messages: [{ role: "user" as const, content: { type: "text" as const, text: String(args.prompt) } }],
          maxTokens: 100,
        };
        if (env.era === "legacy")
          return content(text(`LLM response: ${JSON.stringify((await ctx.mcpReq.requestSampling(request)).content)}`));
        const answer = ctx.mcpReq.inputResponses?.sample as { content?: unknown } | undefined;
        return answer
          ? content(text(`LLM response: ${JSON.stringify(answer.content)}`))
          : inputRequired({ inputRequests: { sample: sample(String(args.prompt), 100) } });
      },
    },
    test_elicitation: {
      description: "Asks the user.",
      inputSchema: { properties: { message: { type: "string" } }, required: ["message"] },
      run: (args, ctx) =>
        elicit(
          env,
          ctx,
          String(args.message),
          {
            username: { type: "string", description: "User's response" },
            email: { type: "string", description: "User's email address" },
          },
          "User response: ",
          ["username", "email"],
        ),
    },
    test_elicitation_sep1034_defaults: {
      description: "Asks with defaults.",
      run: (_, ctx) => elicit(env, ctx, "Please review", DEFAULTS, "Elicitation completed: "),
    },
    test_elicitation_sep1330_enums: {
      description: "Asks with choices.",
      run: (_, ctx) => elicit(env, ctx, "Please choose", ENUMS, "Elicitation completed: "),
    },
    json_schema_2020_12_tool: {
      description: "Has a schema with newer keywords.",
      inputSchema: SCHEMA_2020_12,
      run: () => content(text("ok")),
    },
    test_missing_capability: {
      description: "Needs sampling.",
      run(_, ctx) {
        if (!capabilities(env, ctx).sampling)
          throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { sampling: {} } });
        return content(text("ok"));
      },
    },
    test_streaming_elicitation: {
      description: "Reports, then asks.",
      run: (_, ctx) => {
        const name = accepted(ctx, "answer");
        return name
          ? content(text("thanks"))
          : inputRequired({ inputRequests: { answer: ask("Anything?", { value: { type: "string" } }) } });
      },
    },
    test_trigger_tool_change: { description: "Changes the list of tools.", run: () => trigger(env, "tools") },
    test_trigger_prompt_change: { description: "Changes the list of prompts.", run: () => trigger(env, "prompts") },
    ...inputTools(env),
  };
}

async function logging(ctx: ServerContext, pauseMs = 50): Promise<Result> {
  for (const line of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
    await ctx.mcpReq.log("info", line);
    await sleep(pauseMs);
  }
  return content(text("Tool with logging executed successfully"));
}

async function progress(ctx: ServerContext): Promise<Result> {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  for (const done of [0, 50, 100]) {
    if (progressToken !== undefined)
      await ctx.mcpReq.notify({
        method: "notifications/progress",
        params: { progressToken, progress: done, total: 100 },
      });
    await sleep(50);
  }
  return content(text(String(progressToken)));
}

async function elicit(
  env: FeatureEnv,
  ctx: ServerContext,
  message: string,
  properties: Result,
  prefix: string,
  required: string[] = [],
): Promise<Result> {
  const requestedSchema = { type: "object", properties, required } as never;
  const shown = (answer: { action?: unknown; content?: unknown }): Result =>
    content(text(`${prefix}action=${String(answer.action)}, content=${JSON.stringify(answer.content ?? {})}`));
  if (env.era === "legacy") return shown(await ctx.mcpReq.elicitInput({ mode: "form", message, requestedSchema }));
  const given = ctx.mcpReq.inputResponses?.form as { action?: unknown; content?: unknown } | undefined;
  if (given) return shown(given);
  return inputRequired({
    inputRequests: { form: { method: "elicitation/create", params: { mode: "form", message, requestedSchema } } },
  });
}

function trigger(env: FeatureEnv, list: "tools" | "prompts"): Result {
  env.changed(list);
  return content(text("changed"));
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
