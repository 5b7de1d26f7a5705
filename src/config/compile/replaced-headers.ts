/**
 * A policy may copy a credential into another header, and a later one take the original out: the copy must stay hidden
 * where the request is shown afterwards. So whoever replaces a sensitive header leaves
 * its value with the exchange. Policies that replace none are returned as they are.
 */

import type { Hooks } from "../../core/policy.ts";
import type { Redaction } from "../../observe/trace/redact.ts";

export function rememberReplaced(hooks: Hooks, redaction: Redaction): Hooks {
  const names = hooks.replaces?.filter((name) => redaction.isSensitive(name)) ?? [];
  const { request } = hooks;
  if (names.length === 0 || request === undefined) return hooks;
  return {
    ...hooks,
    request(exchange) {
      for (const name of names) {
        const values = exchange.request.headers.getAll(name);
        if (values.length === 0) continue;
        exchange.credentials.secrets ??= [];
        exchange.credentials.secrets.push(...redaction.secrets(values.flatMap((value) => [name, value])));
      }
      return request(exchange);
    },
  };
}
