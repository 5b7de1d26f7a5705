/**
 * `rateLimit`: budgets of requests or LLM tokens, counted here (`local`) or by an external service (`global`).
 * Request limits are checked when a request is authenticated and authorised, token limits when its body is parsed;
 * tokens are estimated then and settled when the response has ended (spec 3 and 8). A response is never cut.
 */
import type { Exchange } from "../../core/exchange.ts";
import { type Charge, type CompileEnv, definePolicy, type Hooks, type Outcome } from "../../core/policy.ts";
import { compileGlobalLimit } from "./global-limit.ts";
import { ask, keysOf, LocalCharge, ONE } from "./local-admission.ts";
import { compileLocalLimit, type LocalLimit } from "./local-limit.ts";
import { writeLimitHeaders } from "./readings.ts";
import { type LocalLimitConfig, rateLimitSchema } from "./schema.ts";
import { estimatedTokens, outputTokens, usedTokens } from "./token-count.ts";

export const rateLimit = definePolicy({
  kind: "rateLimit",
  doc: "Limits requests or LLM tokens per second, minute or hour, for all or per key; answers 429 when a budget is used up.",
  scopes: ["gateway", "route"],
  schema: rateLimitSchema,

  compile(config, env): Hooks {
    const limits = compileLocalLimits(config.local ?? [], env);
    const requestLimits = limits.filter((limit) => limit.type === "requests");
    const tokenLimits = limits.filter((limit) => limit.type === "tokens");
    const reservesOutput = tokenLimits.some((limit) => limit.reservesOutput);
    const global = config.global === undefined ? undefined : compileGlobalLimit(config.global, env);
    const charges = new WeakMap<Exchange, LocalCharge>();
    const nowMs = (): number => Math.floor(env.clock.monotonicMs());

    /** Limits whose key reads what the body says (`mcp.*`) wait for it, the others refuse before it is read. */
    function admitRequests(needsBody: boolean): ((exchange: Exchange) => Charge) | undefined {
      const asked = requestLimits.filter((limit) => limit.needsBody === needsBody);
      const service = global?.counts.requests === true && global.needsBody === needsBody ? global : undefined;
      if (asked.length === 0 && service === undefined) return undefined;
      return (exchange) => {
        const keys = keysOf(asked, exchange);
        ask(asked, keys, ONE, exchange, nowMs());
        const charge = new LocalCharge(asked, keys, ONE, exchange, nowMs);
        if (service) charge.confirm = () => service.admitRequest(exchange);
        return charge;
      };
    }

    function llmRequest(exchange: Exchange): Charge {
      const keys = keysOf(tokenLimits, exchange);
      const estimate = estimatedTokens(exchange.facts.llm);
      const amount = { charged: estimate, reserved: reservesOutput ? outputTokens(exchange.facts.llm) : 0 };
      ask(tokenLimits, keys, amount, exchange, nowMs());
      const charge = new LocalCharge(tokenLimits, keys, amount, exchange, nowMs);
      if (global?.counts.tokens) charge.confirm = () => global.admitTokens(exchange, estimate);
      charges.set(exchange, charge);
      return charge;
    }

    function settleTokens(exchange: Exchange, outcome: Outcome): void {
      const charge = charges.get(exchange);
      const { llm } = exchange.facts;
      const used = usedTokens(llm, outcome) ?? charge?.recount(estimatedTokens(llm));
      if (used === undefined) return;
      charge?.settle(used);
      global?.settleTokens(exchange, used);
    }

    function response(exchange: Exchange): void {
      global?.respond(exchange);
      writeLimitHeaders(exchange);
    }

    const admit = admitRequests(false);
    const admitParsed = admitRequests(true);
    const model = tokenLimits.some((limit) => limit.readsModel) || global?.readsModel === true;
    const countsTokens = tokenLimits.length > 0 || global?.counts.tokens === true;
    return {
      ...(admit ? { admit } : {}),
      ...(admitParsed ? { admitParsed } : {}),
      ...(countsTokens ? { llmRequest, settle: settleTokens, sight: { tokens: true, model } } : {}),
      response,
    };
  },
});

function compileLocalLimits(entries: readonly LocalLimitConfig[], env: CompileEnv): LocalLimit[] {
  const seen = new Map<string, number>();
  return entries.map((entry) => {
    // The entry itself is the name: entries keep their budgets when others are added or moved; twins have one each.
    const text = JSON.stringify(entry);
    const twin = seen.get(text) ?? 0;
    seen.set(text, twin + 1);
    return compileLocalLimit(entry, `rateLimit ${env.owner} ${text} ${twin}`, env);
  });
}
