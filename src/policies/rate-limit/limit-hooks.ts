/**
 * The hooks of limits of one mode: those that are enforced, or those that are only watched. Request limits are checked
 * when a request is authenticated and authorised, token limits when its body is parsed; tokens are estimated then and
 * settled when the response has ended (spec 3 and 8).
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Charge, Hooks, Outcome } from "../../core/policy.ts";
import { LlmRequestFacts } from "../../llm/request/llm-facts.ts";
import { estimatedTokens, outputTokens, usedTokens } from "../../llm/usage/usage.ts";
import type { GlobalLimit } from "./global-limit.ts";
import { ask, keysOf, LocalCharge, type LocalLimit, ONE } from "./local-limit.ts";
import { writeLimitHeaders } from "./readings.ts";

export function limitHooks(
  limits: readonly LocalLimit[],
  global: GlobalLimit | undefined,
  isShadow: boolean,
  clock: Clock,
): Hooks {
  const requestLimits = limits.filter((limit) => limit.type === "requests");
  const tokenLimits = limits.filter((limit) => limit.type === "tokens");
  const readsModel = tokenLimits.some((limit) => limit.readsModel) || global?.readsModel === true;
  const reservesOutput = tokenLimits.some((limit) => limit.reservesOutput);
  const nowMs = (): number => Math.floor(clock.monotonicMs());

  /** Limits whose key reads what the body says (`mcp.*`) wait for it, the others refuse before it is read. */
  function admitRequests(needsBody: boolean): ((exchange: Exchange) => Charge | undefined) | undefined {
    const asked = requestLimits.filter((limit) => limit.needsBody === needsBody);
    const service = global?.counts.requests === true && global.needsBody === needsBody ? global : undefined;
    if (asked.length === 0 && service === undefined) return undefined;
    return (exchange) => {
      if (isShadow && exchange.shadow.isFree) return undefined;
      const keys = keysOf(asked, exchange);
      if (!ask(asked, keys, ONE, exchange, nowMs())) return undefined;
      const charge = new LocalCharge(asked, keys, ONE, exchange, nowMs);
      if (service) charge.confirm = () => service.admitRequest(exchange);
      return charge;
    };
  }

  function llmRequest(exchange: Exchange): Charge | undefined {
    if (isShadow && exchange.shadow.isFree) return undefined;
    if (readsModel && !isShadow) LlmRequestFacts.requireOneModel(exchange.facts.llm);
    const keys = keysOf(tokenLimits, exchange);
    const estimate = estimatedTokens(exchange.facts.llm);
    const amount = { charged: estimate, reserved: reservesOutput ? outputTokens(exchange.facts.llm) : 0 };
    if (!ask(tokenLimits, keys, amount, exchange, nowMs())) return undefined;
    const charge = new LocalCharge(tokenLimits, keys, amount, exchange, nowMs);
    if (global?.counts.tokens) charge.confirm = () => global.admitTokens(exchange, estimate);
    if (exchange.limits.tokenCharges === undefined) exchange.limits.tokenCharges = [charge];
    else exchange.limits.tokenCharges.push(charge);
    return charge;
  }

  /** Found in the exchange itself: a map of exchanges would keep them for the collector. */
  function tokenCharge({ limits: { tokenCharges } }: Exchange): LocalCharge | undefined {
    const isOwn = (one: object): boolean => one instanceof LocalCharge && one.isOf(tokenLimits);
    return tokenCharges?.findLast(isOwn) as LocalCharge | undefined;
  }

  function settleTokens(exchange: Exchange, outcome: Outcome): undefined {
    if (isShadow && exchange.shadow.isFree) return;
    const charge = tokenCharge(exchange);
    const { llm } = exchange.facts;
    const used = usedTokens(llm, outcome) ?? charge?.recount(estimatedTokens(llm));
    if (used === undefined) return;
    charge?.settle(used);
    global?.settleTokens(exchange, used);
  }

  function response(exchange: Exchange): undefined {
    global?.respond(exchange);
    writeLimitHeaders(exchange);
  }

  const admit = admitRequests(false);
  const admitParsed = admitRequests(true);
  const countsTokens = tokenLimits.length > 0 || global?.counts.tokens === true;
  // Bodies that could be read in two ways are rejected for a limit, not for one that is only watched.
  const sight = isShadow ? { watchedTokens: true } : { tokens: true, model: readsModel };
  return {
    ...(admit ? { admit } : {}),
    ...(admitParsed ? { admitParsed } : {}),
    ...(countsTokens ? { llmRequest, settle: settleTokens, sight } : {}),
    ...(isShadow ? {} : { response }),
  };
}

/** Limits of both modes on one place: those that are enforced are asked first. */
export function bothHooks(enforced: Hooks, shadow: Hooks): Hooks {
  const joined = (name: "admit" | "admitParsed" | "llmRequest"): Partial<Hooks> => {
    const one = enforced[name];
    const other = shadow[name];
    if (!one || !other) return one || other ? { [name]: one ?? other } : {};
    return { [name]: (exchange: Exchange) => bothCharges(one(exchange), other(exchange)) };
  };
  return {
    ...joined("admit"),
    ...joined("admitParsed"),
    ...joined("llmRequest"),
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

function bothCharges(one: Charge | undefined, other: Charge | undefined): Charge | undefined {
  if (!one || !other) return one ?? other;
  return {
    take() {
      one.take();
      other.take();
    },
    giveBack() {
      one.giveBack();
      other.giveBack();
    },
    ...(one.confirm || other.confirm
      ? {
          async confirm() {
            await one.confirm?.();
            await other.confirm?.();
          },
        }
      : {}),
  };
}
