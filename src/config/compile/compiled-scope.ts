/**
 * Sorts the compiled policies of a scope into the lists that the pipeline runs for requests and responses.
 */

import { GatewayError } from "../../core/errors.ts";
import type { CompiledPolicy, CompiledScope, Hooks, PolicyDefinition, RequestHook } from "../../core/policy.ts";
import { defined } from "../../json/json.ts";
import { policies } from "../../policies/index.ts";
import type { Phase } from "../../record/trace/record.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { PlacedPolicy } from "../load/normal-config.ts";
import { shownConfig } from "../schema/shown-config.ts";

/** If `closedBy` is set, the scope rejects all requests. It gives the reason. */
export function scopeOf(
  phase: Phase,
  placed: readonly PlacedPolicy[],
  compiled: ReadonlyMap<PlacedPolicy, CompiledPolicy>,
  closedBy: string | undefined,
  effectivePolicy: Readonly<Record<string, unknown>>,
): CompiledScope {
  const inOrder = (list: readonly PolicyDefinition[]): CompiledPolicy[] =>
    // Most scopes of a large configuration are empty.
    placed.length === 0
      ? []
      : list.flatMap(({ kind }) =>
          placed.filter((policy) => policy.kind === kind).flatMap((policy) => compiled.get(policy) ?? []),
        );
  const all = inOrder(policies);
  const access =
    closedBy === undefined ? all.filter(({ hooks }) => runsOnHead(hooks.access)) : [closed(phase, closedBy)];
  const shape = all.filter(({ hooks }) => runsOnHead(hooks.shape));
  const scope: CompiledScope = {
    phase,
    access,
    admit: {
      head: all.filter(({ hooks }) => hooks.admit?.head),
      body: all.filter(({ hooks }) => hooks.admit?.body),
      call: all.filter(({ hooks }) => hooks.admit?.call),
    },
    shape,
    body: all.filter(({ hooks }) => hooks.access?.body ?? hooks.shape?.body),
    isTransparent: access.length === 0 && shape.length === 0,
    sight: {
      tokens: all.some(({ hooks }) => hooks.sight?.tokens === true),
      watchedTokens: all.some(({ hooks }) => hooks.sight?.watchedTokens === true),
      model: all.some(({ hooks }) => hooks.sight?.model === true),
      call: all.some(({ hooks }) => hooks.sight?.call === true),
    },
    response: all.filter(({ hooks }) => hooks.response).reverse(),
    settle: all.filter(({ hooks }) => hooks.settle).reverse(),
    settings: Object.assign({}, ...all.map(({ hooks }) => hooks.settings)),
    readsResponseBody: all.some(({ hooks }) => hooks.response?.readsBody),
    effectivePolicy,
  };
  const preface = prefaceOf(scope);
  const loginPaths = all.find(({ hooks }) => hooks.clients?.loginPaths !== undefined)?.hooks.clients?.loginPaths;
  const forLogins = access.filter(({ kind }) => policies.find((one) => one.kind === kind)?.exemptsLogins !== true);
  return {
    ...scope,
    ...defined({ preface, loginPaths }),
    ...(forLogins.length === access.length ? {} : { forLogins: { ...scope, access: forLogins } }),
  };
}

function prefaceOf(scope: CompiledScope): CompiledScope | undefined {
  const access = scope.access.filter(({ kind }) =>
    policies.some((one) => one.kind === kind && one.merge === "innermost"),
  );
  // A client that the gateway rejects must also learn where to log in.
  const response = scope.response.filter(
    (policy) => access.includes(policy) || policy.hooks.clients?.loginPaths !== undefined,
  );
  if (access.length === 0 && response.length === 0) return undefined;
  const none = { admit: { head: [], body: [], call: [] }, shape: [], body: [], settle: [] };
  return { ...scope, access, response, ...none };
}

function closed(phase: Phase, reason: string): CompiledPolicy {
  const head = (): never => {
    throw new GatewayError("policy_invalid", { detail: reason });
  };
  return { kind: "closed", phase, hooks: { access: { head } } };
}

/** A hook without `head` also runs if the policy's response hook reads the request's body. */
function runsOnHead(hook: RequestHook | undefined): boolean {
  return hook?.head !== undefined || hook?.bodyBytes !== undefined;
}

export function definitionOf(kind: string): PolicyDefinition {
  const found = policies.find((policy) => policy.kind === kind);
  if (!found) throw new Error(`no policy of the kind ${kind}`);
  return found;
}

export function shownPolicies(placed: readonly PlacedPolicy[], redaction: Redaction): Record<string, unknown> {
  const shown: Record<string, unknown> = {};
  for (const { kind, place, config, written } of placed) {
    const { schema, shown: withoutAliases } = definitionOf(kind);
    const source = (written ?? writtenAt(place) ?? config) as Record<string, unknown>;
    const value = shownConfig(schema, withoutAliases?.(source) ?? source, redaction);
    // Resource documents can put the same kind on a scope twice, so the dump shows both.
    shown[kind] = shown[kind] === undefined ? value : [shown[kind], value].flat();
  }
  return shown;
}

function writtenAt({ document, path }: PlacedPolicy["place"]): unknown {
  let value = document.value;
  for (const key of path) value = (value as Record<string | number, unknown> | null | undefined)?.[key];
  return value;
}

/** Outputs redact the values that policies remove or overwrite. */
export function rememberReplaced(hooks: Hooks, redaction: Redaction): Hooks {
  const { access, shape } = hooks;
  return {
    ...hooks,
    ...(access === undefined ? {} : { access: remembering(access, redaction) }),
    ...(shape === undefined ? {} : { shape: remembering(shape, redaction) }),
  };
}

function remembering(hook: RequestHook, redaction: Redaction): RequestHook {
  const names = hook.replaces?.filter((name) => redaction.isSensitive(name)) ?? [];
  const { head } = hook;
  if (names.length === 0 || head === undefined) return hook;
  return {
    ...hook,
    head(exchange) {
      for (const name of names) {
        const values = exchange.request.headers.getAll(name);
        if (values.length === 0) continue;
        exchange.credentials.secrets ??= [];
        exchange.credentials.secrets.push(...redaction.secrets(values.flatMap((value) => [name, value])));
      }
      return head(exchange);
    },
  };
}
