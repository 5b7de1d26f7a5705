/**
 * Builds the hooks of a `rateLimit` policy for the limits of one mode (enforced or shadow).
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { AdmitHook, Charge, Hooks, Outcome } from "../../core/policy.ts";
import { LlmRequestAttributes, requireKnownCost } from "../../llm/request/llm-call.ts";
import { estimatedTokens, outputTokens, usedTokens } from "../../llm/usage/usage.ts";
import type { GlobalLimit } from "./global-limit.ts";
import { writeLimitHeaders } from "./limit-headers.ts";
import { checkLimits, keysOf, LocalCharge, type LocalLimit, ONE_REQUEST } from "./local-limit.ts";

export function limitHooks(
  limits: readonly LocalLimit[],
  global: GlobalLimit | undefined,
  isShadow: boolean,
  clock: Clock,
  unpriced: "refuse" | "allow",
): Hooks {
  const requestLimits = limits.filter((limit) => limit.type === "requests");
  const tokenLimits = limits.filter((limit) => limit.type === "tokens");
  const readsModel = tokenLimits.some((limit) => limit.readsModel) || global?.readsModel === true;
  const reservesOutput = tokenLimits.some((limit) => limit.reservesOutput);
  const nowMs = (): number => Math.floor(clock.monotonicMs());

  /** Limits whose key reads the body (`mcp.*`, `a2a.*`) are checked after the body is parsed. */
  function admitRequests(needsBody: boolean): ((exchange: Exchange) => Charge | undefined) | undefined {
    const checked = requestLimits.filter((limit) => limit.needsBody === needsBody);
    const service = global?.counts.requests === true && global.needsBody === needsBody ? global : undefined;
    if (checked.length === 0 && service === undefined) return undefined;
    return (exchange) => {
      if (isShadow && exchange.shadow.isFree) return undefined;
      const keys = keysOf(checked, exchange);
      const checkedMs = nowMs();
      if (!checkLimits(checked, keys, ONE_REQUEST, exchange, checkedMs)) return undefined;
      const charge = new LocalCharge(checked, keys, ONE_REQUEST, exchange, checkedMs, nowMs);
      if (service) charge.confirm = () => service.admitRequest(exchange);
      return charge;
    };
  }

  function call(exchange: Exchange): Charge | undefined {
    if (isShadow && exchange.shadow.isFree) return undefined;
    if (readsModel && !isShadow) LlmRequestAttributes.requireOneModel(exchange.attributes.llm);
    if (!isShadow && unpriced === "refuse") requireKnownCost(exchange.attributes.llm, "rateLimit");
    const keys = keysOf(tokenLimits, exchange);
    const estimate = estimatedTokens(exchange.attributes.llm);
    const amount = { charged: estimate, reserved: reservesOutput ? outputTokens(exchange.attributes.llm) : 0 };
    const checkedMs = nowMs();
    if (!checkLimits(tokenLimits, keys, amount, exchange, checkedMs)) return undefined;
    const charge = new LocalCharge(tokenLimits, keys, amount, exchange, checkedMs, nowMs);
    if (global?.counts.tokens) charge.confirm = () => global.admitTokens(exchange, estimate);
    if (exchange.limits.tokenCharges === undefined) exchange.limits.tokenCharges = [charge];
    else exchange.limits.tokenCharges.push(charge);
    return charge;
  }

  function tokenCharge({ limits: { tokenCharges } }: Exchange): LocalCharge | undefined {
    const isOwn = (charge: object): boolean => charge instanceof LocalCharge && charge.isFor(tokenLimits);
    return tokenCharges?.findLast(isOwn) as LocalCharge | undefined;
  }

  function settleTokens(exchange: Exchange, outcome: Outcome): undefined {
    if (isShadow && exchange.shadow.isFree) return;
    const charge = tokenCharge(exchange);
    const { llm } = exchange.attributes;
    const used = usedTokens(llm, outcome) ?? charge?.recount(estimatedTokens(llm));
    if (used === undefined) return;
    charge?.settle(used);
    global?.settleTokens(exchange, used);
  }

  function response(exchange: Exchange): undefined {
    global?.respond(exchange);
    writeLimitHeaders(exchange);
  }

  const head = admitRequests(false);
  const body = admitRequests(true);
  const countsTokens = tokenLimits.length > 0 || global?.counts.tokens === true;
  // Ambiguous bodies are rejected only if a limit is enforced.
  const sight = isShadow ? { watchedTokens: true } : { tokens: true, model: readsModel };
  return {
    admit: { ...(head ? { head } : {}), ...(body ? { body } : {}), ...(countsTokens ? { call } : {}) },
    ...(countsTokens ? { settle: settleTokens, sight } : {}),
    ...(isShadow ? {} : { response: { head: response } }),
  };
}

/** Combines the hooks of enforced and shadow limits in one scope. Enforced limits are checked first. */
export function combineHooks(enforced: Hooks, shadow: Hooks): Hooks {
  const combined = (name: keyof AdmitHook): AdmitHook => {
    const first = enforced.admit?.[name];
    const second = shadow.admit?.[name];
    if (!first || !second) return first || second ? { [name]: first ?? second } : {};
    return { [name]: (exchange: Exchange) => combineCharges(first(exchange), second(exchange)) };
  };
  return {
    admit: { ...combined("head"), ...combined("body"), ...combined("call") },
    ...(enforced.response ? { response: enforced.response } : {}),
    ...(enforced.settle || shadow.settle
      ? {
          settle(exchange: Exchange, outcome: Outcome) {
            enforced.settle?.(exchange, outcome);
            shadow.settle?.(exchange, outcome);
          },
        }
      : {}),
    ...(enforced.sight || shadow.sight ? { sight: { ...shadow.sight, ...enforced.sight } } : {}),
  };
}

function combineCharges(first: Charge | undefined, second: Charge | undefined): Charge | undefined {
  if (!first || !second) return first ?? second;
  return {
    take() {
      first.take();
      second.take();
    },
    giveBack() {
      first.giveBack();
      second.giveBack();
    },
    ...(first.confirm || second.confirm
      ? {
          async confirm() {
            await first.confirm?.();
            await second.confirm?.();
          },
        }
      : {}),
  };
}
