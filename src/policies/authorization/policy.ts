/**
 * `authorization`: evaluates CEL rules over request attributes, such as verified token claims. Rules that read `llm.*`,
 * `mcp.*`, or `a2a.*` run after the backend has parsed the body.
 */
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import { CelAttributes } from "../../core/cel-attributes.ts";
import { ConfigError } from "../../core/config-error.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest, StateKey } from "../../core/exchange.ts";
import { bodyFor, definePolicy, type Hooks } from "../../core/policy.ts";
import type { RequestAttributes } from "../../core/request-attributes.ts";
import {
  type AccessRules,
  accessRule,
  compileAccessRules,
  denial,
  enforcement,
} from "../../identity/access/access-rules.ts";
import { LlmRequestAttributes } from "../../llm/request/llm-call.ts";
import { canonicalA2aMethod, misspelledA2aMethod } from "../../policy-parts/a2a-methods.ts";

export const authorization = definePolicy({
  kind: "authorization",
  doc: "Allows a request only if it satisfies the rules.",
  scopes: ["gateway", "route", "backend", "model"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  schema: z.strictObject({
    mode: enforcement.optional(),
    rules: z
      .array(accessRule)
      .min(1)
      .describe(
        'CEL expressions, all of which must be true, for example `"admin" in jwt.roles`; or `{allow}`, `{deny}`, `{require}`.',
      ),
  }),

  compile(config, env): Hooks {
    // A rule that does not parse fails the configuration load, not a request.
    const rules = compileAccessRules(config.rules, "require", env.cel);
    const expressions = [...rules.allow, ...rules.deny, ...rules.require];
    for (const rule of expressions)
      for (const path of readsTooEarly(rule))
        env.warn(`authorization: \`${path}\` is known only when the call was made: the rule \`${rule.source}\` denies`);
    for (const rule of expressions) checkA2aNames(rule);
    const body = bodyFor(expressions);
    const { early, late } = splitRules(rules);
    const isShadow = config.mode === "shadow";
    const check = (checked: AccessRules, attributes: CelAttributes, exchange: Exchange): undefined => {
      const decided = (rule: string | undefined): void => {
        exchange.decidedBy = { policy: "authorization", rule };
      };
      const denied = denial(checked, attributes, decided);
      if (denied === undefined) return undefined;
      decided(denied.rule);
      const detail = denied.explain();
      if (!isShadow) {
        exchange.checkedRules = denied.checked();
        throw new GatewayError("authorization_denied", { detail });
      }
      exchange.deniedInShadow("authorization", detail);
      return undefined;
    };
    if (late === undefined)
      return { access: { ...body, head: (exchange) => check(early, exchange.celAttributes, exchange) } };

    const readsMcp = readsBody(late, "mcp");
    const readsLlm = readsBody(late, "llm");
    /** The request as it was when the rules that need no body ran, before other policies transform it. */
    const unchanged = new StateKey<GatewayRequest>();
    function otherModels(exchange: Exchange): readonly string[] | undefined {
      const { llm } = exchange.attributes;
      try {
        return LlmRequestAttributes.hasOtherModels(llm) ? LlmRequestAttributes.modelsOf(llm) : undefined;
      } catch (error) {
        // `modelsOf` throws if the request names too many models.
        if (!isShadow || !(error instanceof GatewayError)) throw error;
        exchange.deniedInShadow("authorization", error.message);
        return undefined;
      }
    }
    return {
      // Ambiguous bodies are rejected only if the rules are enforced.
      sight: { model: readsLlm && !isShadow },
      access: {
        ...body,
        head(exchange) {
          check(early, exchange.celAttributes, exchange);
          exchange.setState(unchanged, forkRequest(exchange.request));
          if (readsMcp && isShadow) exchange.mcp.isWatched = true;
          else if (readsMcp) exchange.mcp.isJudged = true;
          return undefined;
        },
        body(exchange) {
          const request = exchange.state(unchanged) ?? exchange.request;
          const {
            attributes,
            mcp: { batch: mcpBatch },
          } = exchange;
          const models = readsLlm ? otherModels(exchange) : undefined;
          if (models !== undefined) {
            // A provider may use any of the models, so the rules must hold for each.
            for (const requestModel of models) {
              const llm = { requestModel, streaming: attributes.llm?.streaming === true };
              check(late, createAttributes(exchange, request, { ...attributes, llm }), exchange);
            }
          } else if (mcpBatch === undefined) check(late, createAttributes(exchange, request, attributes), exchange);
          else
            for (const mcp of mcpBatch)
              check(late, createAttributes(exchange, request, { ...attributes, mcp }), exchange);
        },
      },
    };
  },
});

/**
 * Rejects method names with another case, and the names of other A2A versions, when the configuration is loaded. A
 * `deny` rule with such a name would never match.
 */
function checkA2aNames(rule: Expression): void {
  for (const { path, values } of rule.readings().comparisons) {
    if (path !== "a2a.method") continue;
    for (const value of values) {
      const canonical = canonicalA2aMethod(value) ?? misspelledA2aMethod(value);
      if (canonical !== undefined && canonical !== value)
        throw new ConfigError(
          undefined,
          "rules",
          `\`a2a.method\` is never "${value}": it is "${canonicalA2aMethod(canonical)}" for all versions of A2A; write that in \`${rule.source}\``,
        );
    }
  }
}

function createAttributes(exchange: Exchange, request: GatewayRequest, attributes: RequestAttributes): CelAttributes {
  const { response, startedAt, source, listener, route, trace, credentials, mcp } = exchange;
  return new CelAttributes({
    request,
    attributes,
    mcp,
    response,
    startedAt,
    source,
    listener,
    route,
    trace,
    credentials,
  });
}

/** Rules run before the call, when only these `llm` attributes are known. */
const KNOWN_BEFORE_CALL: ReadonlySet<string> = new Set(["llm", "llm.requestModel", "llm.streaming"]);

export interface SplitRules {
  readonly early: AccessRules;
  /** The value is undefined if no rule needs the parsed body. */
  readonly late: AccessRules | undefined;
}

export function splitRules(rules: AccessRules): SplitRules {
  const isLate = (rule: Expression): boolean => ["llm", "mcp", "a2a"].some((name) => rule.attributes.has(name));
  const isEarly = (rule: Expression): boolean => !isLate(rule);
  // One matching allow rule is enough. If any allow rule needs the body, all are evaluated after it is parsed.
  const allowsLate = rules.allow.some(isLate);
  const late: AccessRules = {
    allow: allowsLate ? rules.allow : [],
    deny: rules.deny.filter(isLate),
    require: rules.require.filter(isLate),
  };
  const early: AccessRules = {
    allow: allowsLate ? [] : rules.allow,
    deny: rules.deny.filter(isEarly),
    require: rules.require.filter(isEarly),
  };
  return { early, late: late.allow.length + late.deny.length + late.require.length === 0 ? undefined : late };
}

export function readsBody(rules: AccessRules, attribute: "llm" | "mcp"): boolean {
  return [...rules.allow, ...rules.deny, ...rules.require].some((rule) => rule.attributes.has(attribute));
}

/** Returns attributes that the rule reads before their values exist. */
export function readsTooEarly(rule: Expression): string[] {
  return [...rule.paths].filter((path) => path.startsWith("llm.") && !KNOWN_BEFORE_CALL.has(path));
}
