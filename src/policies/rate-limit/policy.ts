/**
 * `rateLimit`: budgets of requests or LLM tokens, counted here (`local`) or by an external service (`global`).
 * Each limit is enforced or, in `mode: shadow`, only watched. A response is never cut.
 */
import { type CompileEnv, definePolicy, type Hooks } from "../../core/policy.ts";
import { compileGlobalLimit } from "./global-limit.ts";
import { bothHooks, limitHooks } from "./limit-hooks.ts";
import { compileLocalLimit, type LocalLimit } from "./local-limit.ts";
import { type LocalLimitConfig, rateLimitSchema } from "./schema.ts";

export const rateLimit = definePolicy({
  kind: "rateLimit",
  doc: "Limits requests or LLM tokens per second, minute or hour, for all or per key; answers 429 when a budget is used up.",
  scopes: ["gateway", "route", "model"],
  schema: rateLimitSchema,

  compile(config, env): Hooks {
    const limits = compileLocalLimits(config.local ?? [], env);
    const global = config.global === undefined ? undefined : compileGlobalLimit(config.global, env);
    const ofMode = (isShadow: boolean): Hooks | undefined => {
      const own = limits.filter((limit) => limit.isShadow === isShadow);
      const service = global?.isShadow === isShadow ? global : undefined;
      return own.length === 0 && !service ? undefined : limitHooks(own, service, isShadow, env.clock);
    };
    const enforced = ofMode(false);
    const shadow = ofMode(true);
    if (enforced && shadow) return bothHooks(enforced, shadow);
    return enforced ?? shadow ?? {};
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
