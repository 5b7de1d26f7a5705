/**
 * `rateLimit`: limits requests or LLM tokens, counted in this process (`local`) or by an external service (`global`).
 * Each limit is enforced or, in `mode: shadow`, only recorded.
 */
import { protectionBy } from "../../core/cel-attributes.ts";
import { type CompileEnv, definePolicy, type Hooks } from "../../core/policy.ts";
import { compileGlobalLimit } from "./global-limit.ts";
import { combineHooks, limitHooks } from "./limit-hooks.ts";
import { compileLocalLimit, type LocalLimit } from "./local-limit.ts";
import { type LocalLimitConfig, rateLimitSchema } from "./schema.ts";

export const rateLimit = definePolicy({
  kind: "rateLimit",
  doc: "Limits requests or LLM tokens per second, minute or hour, for all or per key; returns 429 when a limit is reached.",
  scopes: ["gateway", "route", "model"],
  // A limit in shadow mode must not change which requests are accepted.
  protection({ local = [], global }) {
    const enforced = local.filter(isEnforced);
    const service = global !== undefined && isEnforced(global) ? global.descriptors : [];
    if (enforced.length === 0 && service.length === 0) return "none";
    const values = service.flatMap(({ entries }) => entries.map(({ value }) => value));
    return protectionBy([...enforced.map(({ key }) => key), ...values]);
  },
  schema: rateLimitSchema,
  entries: [["local"], ["global", "descriptors"]],

  compile(config, env): Hooks {
    const limits = compileLocalLimits(config.local ?? [], env);
    const global = config.global === undefined ? undefined : compileGlobalLimit(config.global, env);
    const hooksFor = (isShadow: boolean): Hooks | undefined => {
      const own = limits.filter((limit) => limit.isShadow === isShadow);
      const service = global?.isShadow === isShadow ? global : undefined;
      return own.length === 0 && !service ? undefined : limitHooks(own, service, isShadow, env.clock, config.unpriced);
    };
    const enforced = hooksFor(false);
    const shadow = hooksFor(true);
    if (enforced && shadow) return combineHooks(enforced, shadow);
    return enforced ?? shadow ?? {};
  },
});

function isEnforced({ mode }: Pick<LocalLimitConfig, "mode">): boolean {
  return mode !== "shadow";
}

function compileLocalLimits(entries: readonly LocalLimitConfig[], env: CompileEnv): LocalLimit[] {
  const seen = new Map<string, number>();
  return entries.map((entry) => {
    // The entry's content identifies its buckets, so they survive a reload that adds or moves other entries. Identical
    // entries are numbered, and each gets its own buckets.
    const text = JSON.stringify(entry);
    const copy = seen.get(text) ?? 0;
    seen.set(text, copy + 1);
    return compileLocalLimit(entry, `rateLimit ${env.scopeName} ${text} ${copy}`, env);
  });
}
