/**
 * `ai`: sets fields of LLM requests to defaults, fixed values, or computed values, adds prompt messages, resolves model aliases, marks prompts
 * for caching, and guards request and response content. The policy only collects the rules. The `ai` backend, which
 * implements the dialects, applies them.
 */
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Expression } from "../../cel/expression.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type CompileEnv, definePolicy } from "../../core/policy.ts";
import { celSource } from "../../core/schema.ts";
import { readMembers } from "../../json/read-json.ts";
import { compileExternalGuard, guardSchema, reportGuardFailures } from "../../llm/guard-config.ts";
import { editsRequest, hasGuards, noteUnreadRules } from "../../llm/guards/prompt-rules.ts";
import { compileTextGuard } from "../../llm/guards/text-guard.ts";
import {
  type LlmCall,
  llmCall,
  type PromptRules,
  type TextGuard,
  type WebhookGuard,
} from "../../llm/request/llm-call.ts";
import { matchPattern } from "../../llm/request/read-request.ts";

const BODY = peerInput("client/expression-body");

const message = z.strictObject({
  role: z.enum(["system", "developer", "user", "assistant"]).describe("The role of the message."),
  content: z.string().min(1).describe("The text."),
});

const DEFAULT_CACHED_MINIMUM = 1_024;

const guard = guardSchema(
  "message",
  z
    .strictObject({
      status: z.int().min(400).max(599).default(403).describe("The response status. Default: 403."),
      body: z
        .string()
        .min(1)
        .default("The request was rejected due to inappropriate content")
        .describe("The response message."),
    })
    .optional()
    .describe("The response for rejected requests."),
);

const DEFAULT_REJECTION = { status: 403, body: "The request was rejected due to inappropriate content" };

export const ai = definePolicy({
  kind: "ai",
  doc: "Default and fixed parameters, prompts, prompt caching, model aliases, and guards for LLM calls.",
  scopes: ["gateway", "route", "backend", "model"],
  protection: ({ promptGuard: { request = [], response = [] } = {} }) =>
    [...request, ...response].some(({ mode }) => mode !== "shadow") ? "route" : "none",
  schema: z.strictObject({
    defaults: z
      .record(z.string(), z.unknown())
      .optional()
      .describe("Request body fields to set if the client omits them."),
    overrides: z.record(z.string(), z.unknown()).optional().describe("Request body fields to set always."),
    transformations: z
      .record(
        z.string().refine((name) => name !== "model", "use `modelAliases`, because policies were chosen by the model"),
        celSource(),
      )
      .refine((fields) => Object.keys(fields).length > 0, "name at least one field")
      .optional()
      .describe(
        "Request body fields to set from CEL expressions, which read the client's body as `llmRequest`, for example `max_tokens: min(llmRequest.max_tokens, 1000)`. If an expression fails, its field is removed.",
      ),
    prompts: z
      .strictObject({
        prepend: z.array(message).min(1).optional().describe("Messages before the client's."),
        append: z.array(message).min(1).optional().describe("Messages after the client's."),
      })
      .optional()
      .describe("Messages added to every prompt."),
    modelAliases: z
      .record(
        z.string().refine((name) => name.split("*").length <= 2, "at most one * is allowed"),
        z.string().min(1),
      )
      .optional()
      .describe("Model aliases. A `*` in the alias matches any text, which replaces the `*` in the value."),
    promptCaching: z
      .strictObject({
        system: z.boolean().default(true).describe("Mark the end of the system prompt. Default: true."),
        tools: z.boolean().default(true).describe("Mark the end of the tools. Default: true."),
        messages: z.boolean().default(true).describe("Mark the end of the conversation. Default: true."),
        minTokens: z
          .int()
          .min(0)
          .max(1_000_000)
          .default(DEFAULT_CACHED_MINIMUM)
          .describe(
            "The minimum length of a cached prefix, in estimated tokens. Shorter prefixes are not marked. Default: 1024.",
          ),
        ttl: z.enum(["5m", "1h"]).default("5m").describe("How long the provider keeps it. Default: 5m."),
      })
      .optional()
      .describe("Marks what Anthropic and Bedrock should keep in their prompt cache. `{}` marks everything."),
    promptGuard: z
      .strictObject({
        request: z.array(guard).min(1).optional().describe("Checks the text of requests."),
        response: z.array(guard).min(1).optional().describe("Checks the text of responses, including streamed ones."),
      })
      .optional()
      .describe("Masks or rejects matching text."),
  }),

  compile(config, env) {
    const rules: PromptRules = {
      defaults: config.defaults,
      overrides: config.overrides,
      prepend: config.prompts?.prepend,
      append: config.prompts?.append,
      aliases: config.modelAliases && compileAliases(config.modelAliases),
      promptCaching: config.promptCaching,
      requestGuards: compileGuards(config.promptGuard?.request, "enforce"),
      responseGuards: compileGuards(config.promptGuard?.response, "enforce"),
      watchedRequests: compileGuards(config.promptGuard?.request, "shadow"),
      watchedResponses: compileGuards(config.promptGuard?.response, "shadow"),
      requestWebhooks: compileWebhooks(config.promptGuard?.request, env),
      responseWebhooks: compileWebhooks(config.promptGuard?.response, env),
    };
    const computed = Object.entries(config.transformations ?? {}).map(
      ([name, source]) => [name, env.cel(source)] as const,
    );
    const needsCall =
      computed.length > 0 ||
      editsRequest(rules) ||
      [rules.aliases, rules.promptCaching, rules.watchedRequests, rules.requestWebhooks].some(
        (rule) => rule !== undefined,
      );
    const isGuarded = hasGuards(rules) || rules.watchedResponses !== undefined;
    return {
      sight: { call: needsCall },
      // Stored responses and WebSockets carry the same content as calls, so the backend also needs the guards for those
      // requests.
      ...(isGuarded
        ? {
            shape: {
              body(exchange: Exchange): undefined {
                if (exchange.attributes.backend?.type === "ai" && exchange.state(llmCall) === undefined)
                  noteUnreadRules(exchange, rules);
              },
            },
          }
        : {}),
      admit: {
        call(exchange) {
          const call = exchange.state(llmCall);
          if (computed.length === 0) call?.rules.push(rules);
          else if (call) call.rules.push({ ...rules, computed: computeFields(computed, call, exchange) });
          return undefined;
        },
      },
    };
  },
});

/** Throws `GatewayError` if the body is too large for expressions. */
function computeFields(
  fields: readonly (readonly [name: string, value: Expression])[],
  { bytes, scan }: LlmCall,
  exchange: Exchange,
): ReadonlyMap<string, unknown> | undefined {
  if (scan.isForm) return undefined;
  if (bytes.length > BODY.maxBytes)
    throw new GatewayError("body_too_large", {
      detail: `a request of more than ${BODY.maxBytes} bytes cannot pass ai.transformations`,
    });
  exchange.llmRequest = readMembers(BODY, bytes);
  try {
    return new Map(
      fields.map(([name, expression]) => {
        const result = expression.evaluate(exchange.celAttributes);
        return [name, result.ok ? result.value : undefined];
      }),
    );
  } finally {
    exchange.llmRequest = undefined;
  }
}

type GuardConfig = z.output<typeof guard>;

/**
 * Returns undefined if no regular expression guard has the mode, because a defined field replaces the field of an outer
 * scope.
 */
function compileGuards(
  configs: readonly GuardConfig[] | undefined,
  mode: "enforce" | "shadow",
): readonly TextGuard[] | undefined {
  const guards = configs?.flatMap((config) => {
    const { status, body } = config.rejection ?? DEFAULT_REJECTION;
    if (config.regex === undefined || (config.mode ?? "enforce") !== mode) return [];
    return [compileTextGuard(config.regex.action, config.regex.rules, { status, message: body })];
  });
  return guards?.length === 0 ? undefined : guards;
}

function compileWebhooks(
  configs: readonly GuardConfig[] | undefined,
  env: CompileEnv,
): readonly WebhookGuard[] | undefined {
  const failures = env.metrics.counter("gateway_llm_guard_failures_total", "Guard calls without a verdict.", ["url"]);
  const failed = reportGuardFailures("llm", failures, env);
  const guards = configs?.flatMap(({ rejection, mode: _mode, regex: _regex, ...external }) => {
    const { status, body } = rejection ?? DEFAULT_REJECTION;
    return compileExternalGuard(external, { status, message: body }, env, failed) ?? [];
  });
  return guards?.length === 0 ? undefined : guards;
}

/** Exact names take precedence over patterns, which are tried in configuration order. */
function compileAliases(aliases: Readonly<Record<string, string>>): (model: string) => string | undefined {
  const exact = new Map(Object.entries(aliases).filter(([name]) => !name.includes("*")));
  const patterns = Object.entries(aliases).filter(([name]) => name.includes("*"));
  return (model) => {
    const known = exact.get(model);
    if (known !== undefined) return known;
    for (const [pattern, to] of patterns) {
      const starred = matchPattern(pattern, model);
      if (starred !== undefined) return to.replace("*", starred);
    }
    return undefined;
  };
}
