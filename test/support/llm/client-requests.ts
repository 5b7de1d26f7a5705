/**
 * Builds requests with the same features in each client dialect, and parses responses, for tests of every pair of
 * client and provider.
 */
import {
  CALLS,
  type ClientDialect,
  documents,
  get,
  list,
  number,
  PNG,
  QUESTION,
  SCHEMA,
  TOOL,
  text,
  WHERE,
} from "./client-dialect.ts";

const chat: ClientDialect = {
  name: "chat",
  path: () => "/v1/chat/completions",
  body: (model, wish) => ({
    model,
    ...(wish.stream ? { stream: true, stream_options: { include_usage: true } } : {}),
    messages: [
      ...(wish.system ? [{ role: "system", content: wish.system }] : []),
      {
        role: "user",
        content: wish.image
          ? [
              { type: "text", text: QUESTION },
              { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
            ]
          : QUESTION,
      },
      ...(wish.history
        ? [
            {
              role: "assistant",
              content: null,
              tool_calls: CALLS.map(({ id, city }) => ({
                id,
                type: "function",
                function: { name: TOOL.name, arguments: JSON.stringify({ city }) },
              })),
            },
            ...CALLS.map(({ id, result }, i) => ({
              role: "tool",
              tool_call_id: id,
              content:
                i === 1 && wish.history === "image result"
                  ? [
                      { type: "text", text: result },
                      { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
                    ]
                  : result,
            })),
          ]
        : []),
    ],
    ...(wish.tool ? { tools: [{ type: "function", function: { ...TOOL, parameters: WHERE } }] } : {}),
    ...(wish.schema
      ? { response_format: { type: "json_schema", json_schema: { name: "answer", schema: SCHEMA, strict: true } } }
      : {}),
    ...(wish.thinks ? { reasoning_effort: "low" } : {}),
  }),
  read(body, stream) {
    const all = documents(body, stream);
    const said = all.map((one) => get(one, "choices", 0, stream ? "delta" : "message"));
    const calls: { name: string; json: string }[] = [];
    for (const delta of said)
      for (const [i, call] of list(get(delta, "tool_calls")).entries()) {
        const at = typeof call.index === "number" ? call.index : i;
        const known = calls[at] ?? { name: "", json: "" };
        calls[at] = known;
        known.name += text(get(call, "function", "name"));
        known.json += text(get(call, "function", "arguments"));
      }
    return {
      text: said.map((delta) => text(get(delta, "content"))).join(""),
      calls: calls.map(({ name, json }) => ({ name, input: JSON.parse(json) as unknown })),
      finish: text(all.map((one) => get(one, "choices", 0, "finish_reason")).findLast(Boolean)),
      cachedTokens: number(all.map((one) => get(one, "usage", "prompt_tokens_details", "cached_tokens"))),
      error: text(get(all[0], "error", "message")) || undefined,
    };
  },
};

const messages: ClientDialect = {
  name: "messages",
  path: () => "/v1/messages",
  body: (model, wish) => ({
    model,
    max_tokens: 4000,
    ...(wish.stream ? { stream: true } : {}),
    ...(wish.system ? { system: wish.system } : {}),
    messages: [
      {
        role: "user",
        content: wish.image
          ? [
              { type: "text", text: QUESTION },
              { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
            ]
          : QUESTION,
      },
      ...(wish.history
        ? [
            {
              role: "assistant",
              content: CALLS.map(({ id, city }) => ({ type: "tool_use", id, name: TOOL.name, input: { city } })),
            },
            {
              role: "user",
              content: CALLS.map(({ id, result }, i) => ({
                type: "tool_result",
                tool_use_id: id,
                content:
                  i === 1 && wish.history === "image result"
                    ? [
                        { type: "text", text: result },
                        { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
                      ]
                    : result,
              })),
            },
          ]
        : []),
    ],
    ...(wish.tool ? { tools: [{ ...TOOL, input_schema: WHERE }] } : {}),
    ...(wish.schema ? { output_config: { format: { type: "json_schema", schema: SCHEMA } } } : {}),
    ...(wish.thinks ? { thinking: { type: "enabled", budget_tokens: 1024 } } : {}),
  }),
  read(body, stream) {
    const all = documents(body, stream);
    const blocks = stream ? all.flatMap((one) => list([one.content_block ?? one.delta ?? {}])) : list(all[0]?.content);
    const calls: { name: string; json: string }[] = [];
    for (const block of blocks) {
      if (block.type === "tool_use")
        calls.push({ name: text(block.name), json: stream ? "" : JSON.stringify(block.input) });
      const last = calls.at(-1);
      if (last && block.type === "input_json_delta") last.json += text(block.partial_json);
    }
    return {
      text: blocks.map((block) => (/^text/.test(text(block.type)) ? text(block.text) : "")).join(""),
      calls: calls.map(({ name, json }) => ({ name, input: JSON.parse(json || "{}") as unknown })),
      finish: text(all.map((one) => one.stop_reason ?? get(one, "delta", "stop_reason")).findLast(Boolean)),
      cachedTokens: number(
        all.map(
          (one) =>
            get(one, "usage", "cache_read_input_tokens") ?? get(one, "message", "usage", "cache_read_input_tokens"),
        ),
      ),
      error: text(get(all[0], "error", "message")) || undefined,
    };
  },
};

const responses: ClientDialect = {
  name: "responses",
  path: () => "/v1/responses",
  body: (model, wish) => ({
    model,
    ...(wish.stream ? { stream: true } : {}),
    ...(wish.system ? { instructions: wish.system } : {}),
    input: [
      {
        role: "user",
        content: [
          { type: "input_text", text: QUESTION },
          ...(wish.image ? [{ type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" }] : []),
        ],
      },
      ...(wish.history
        ? [
            ...CALLS.map(({ id, city }) => ({
              type: "function_call",
              call_id: id,
              name: TOOL.name,
              arguments: JSON.stringify({ city }),
            })),
            ...CALLS.map(({ id, result }, i) => ({
              type: "function_call_output",
              call_id: id,
              output:
                i === 1 && wish.history === "image result"
                  ? [
                      { type: "input_text", text: result },
                      { type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" },
                    ]
                  : result,
            })),
          ]
        : []),
    ],
    ...(wish.tool ? { tools: [{ type: "function", ...TOOL, parameters: WHERE, strict: false }] } : {}),
    ...(wish.schema ? { text: { format: { type: "json_schema", name: "answer", schema: SCHEMA, strict: true } } } : {}),
    ...(wish.thinks ? { reasoning: { effort: "low" } } : {}),
  }),
  read(body, stream) {
    const all = documents(body, stream);
    const last = stream ? get(all.at(-1), "response") : all[0];
    const output = list(get(last, "output"));
    const deltas = all.map((one) => (one.type === "response.output_text.delta" ? text(one.delta) : "")).join("");
    return {
      text: stream ? deltas : output.flatMap((item) => list(item.content).map((part) => text(part.text))).join(""),
      calls: output
        .filter((item) => item.type === "function_call")
        .map((item) => ({ name: text(item.name), input: JSON.parse(text(item.arguments)) as unknown })),
      finish: text(get(last, "status")),
      cachedTokens: number([get(last, "usage", "input_tokens_details", "cached_tokens")]),
      error: text(get(all[0], "error", "message")) || undefined,
    };
  },
};

const generateContent: ClientDialect = {
  name: "generateContent",
  path: (model, wish) =>
    `/v1beta/models/${encodeURIComponent(model)}:${wish.stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
  body: (_model, wish) => ({
    ...(wish.system ? { systemInstruction: { parts: [{ text: wish.system }] } } : {}),
    contents: [
      {
        role: "user",
        parts: [{ text: QUESTION }, ...(wish.image ? [{ inlineData: { mimeType: "image/png", data: PNG } }] : [])],
      },
      ...(wish.history
        ? [
            { role: "model", parts: CALLS.map(({ city }) => ({ functionCall: { name: TOOL.name, args: { city } } })) },
            {
              role: "user",
              parts: CALLS.map(({ result }, i) => ({
                functionResponse: {
                  name: TOOL.name,
                  response: { output: result },
                  ...(i === 1 && wish.history === "image result"
                    ? { parts: [{ inlineData: { mimeType: "image/png", data: PNG } }] }
                    : {}),
                },
              })),
            },
          ]
        : []),
    ],
    ...(wish.tool ? { tools: [{ functionDeclarations: [{ ...TOOL, parametersJsonSchema: WHERE }] }] } : {}),
    ...(wish.schema || wish.thinks
      ? {
          generationConfig: {
            ...(wish.schema ? { responseMimeType: "application/json", responseJsonSchema: SCHEMA } : {}),
            ...(wish.thinks ? { thinkingConfig: { thinkingBudget: 1024, includeThoughts: true } } : {}),
          },
        }
      : {}),
  }),
  read(body, stream) {
    const all = documents(body, stream);
    const parts = all.flatMap((one) => list(get(one, "candidates", 0, "content", "parts")));
    return {
      text: parts.map((part) => (part.thought === true ? "" : text(part.text))).join(""),
      calls: parts
        .filter((part) => part.functionCall !== undefined)
        .map((part) => ({ name: text(get(part, "functionCall", "name")), input: get(part, "functionCall", "args") })),
      finish: text(all.map((one) => get(one, "candidates", 0, "finishReason")).findLast(Boolean)),
      cachedTokens: number(all.map((one) => get(one, "usageMetadata", "cachedContentTokenCount"))),
      error: text(get(all[0], "error", "message")) || undefined,
    };
  },
};

export const CLIENT_DIALECTS: readonly ClientDialect[] = [chat, messages, responses, generateContent];
