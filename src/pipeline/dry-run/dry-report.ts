/**
 * Builds the report of a dry run, with redacted headers and query.
 */
import type { Exchange, Failure, LimitReading, ShadowDenial, Step } from "../../core/exchange.ts";
import { requestSubject, shownPrincipal } from "../../core/principal.ts";
import { asGatewayError } from "../../core/reply.ts";
import type { Listener } from "../../core/topology.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Walk } from "./dry-topology.ts";

const NOT_ASKED = "not asked in a dry run, which sends nothing; it counts as agreeing";

interface DryStep extends Pick<Step, "phase" | "of" | "policy" | "verdict"> {
  readonly reason?: string;
}

export interface DryReport {
  readonly listener: string;
  readonly route: string | null;
  /** A called backend counts as responding with 200, because its actual response is unknown. */
  readonly status: number;
  /**
   * `answered` means that the gateway responds itself, for example with a redirect, and `refused` that it rejects the
   * request.
   */
  readonly outcome: "forwarded" | "answered" | "refused";
  readonly reason?: Pick<Failure, "code" | "message" | "detail">;
  readonly subject?: string;
  readonly policies: readonly DryStep[];
  readonly shadow: readonly ShadowDenial[];
  readonly limits: readonly Pick<LimitReading, "limit" | "remaining" | "resetSeconds">[];
  readonly backends: readonly { readonly name: string; readonly weight: number; readonly chosen: boolean }[];
  readonly item?: DryItem;
  readonly request?: {
    readonly method: string;
    readonly url: string;
    readonly headers: Readonly<Record<string, string | string[]>>;
  };
  readonly responseHeaders: Readonly<Record<string, string | string[]>>;
}

interface DryItem {
  readonly kind: "tool" | "prompt" | "resource";
  readonly name: string;
  readonly target: string | null;
  readonly visible: boolean;
}

export function buildReport(exchange: Exchange, listener: Listener, walk: Walk, redaction: Redaction): DryReport {
  const { called } = walk;
  // Checking the item may record the reason why it is hidden.
  const item = checkItem(exchange, called !== undefined);
  const { failure, response, identity, request } = exchange;
  const route = listener.routes.find(({ name }) => name === exchange.route);
  const { principal } = identity;
  // Requests show the same subject.
  const subject =
    principal === undefined ? undefined : (requestSubject(exchange.attributes) ?? shownPrincipal(principal));
  const status = response?.status ?? 0;
  const shown = called ?? request;
  const { arrived } = exchange;
  const secrets = [...redaction.secrets(arrived.headers.pairs), ...(exchange.credentials.secrets ?? [])];
  const scrubbed = (text: string): string => redaction.scrub(text, request.headers.pairs, secrets);
  const query = redaction.query(shown.query, exchange.credentials.query);
  return {
    listener: listener.name,
    route: exchange.route ?? null,
    status,
    outcome: called && item?.visible !== false ? "forwarded" : failure ? "refused" : "answered",
    ...(failure
      ? {
          reason: {
            code: failure.code,
            message: scrubbed(failure.message),
            detail: failure.detail && scrubbed(failure.detail),
          },
        }
      : {}),
    ...(subject === undefined ? {} : { subject }),
    policies: exchange.steps.map((step) => dryStep(step, failure, walk, scrubbed)),
    shadow: exchange.shadow.denials ?? [],
    limits: (exchange.limits.readings ?? []).map(({ limit, remaining, resetSeconds }) => ({
      limit,
      remaining,
      resetSeconds,
    })),
    backends: (route?.backends ?? []).map(({ weight, backend }) => ({
      name: backend.attributes.name,
      weight,
      chosen: called !== undefined && exchange.attributes.backend === backend.attributes,
    })),
    ...(item ? { item } : {}),
    ...(called
      ? {
          request: {
            method: called.method,
            url: `${called.scheme}://${redaction.host(called.host)}${called.path}${query === "" ? "" : `?${query}`}`,
            headers: redaction.headers(called.headers.pairs, secrets),
          },
        }
      : {}),
    responseHeaders: response === undefined ? {} : redaction.headers(response.headers.pairs, secrets),
  };
}

function dryStep(
  { phase, of, policy, verdict }: Step,
  failure: Failure | undefined,
  { skippedCalls }: Walk,
  scrubbed: (text: string) => string,
): DryStep {
  const refused = verdict === "refused" && failure ? scrubbed(failure.detail ?? failure.message) : undefined;
  const reason = skippedCalls?.has(policy) ? NOT_ASKED : refused;
  return { phase, ...(of === undefined ? {} : { of }), policy, verdict, ...(reason === undefined ? {} : { reason }) };
}

/** Checks the item with the `mcpAuthorization` rules if the backend is called. */
export function checkItem(exchange: Exchange, isCalled: boolean): DryItem | undefined {
  const { mcp } = exchange.attributes;
  if (mcp === undefined) return undefined;
  const kind = mcp.tool ? "tool" : mcp.prompt ? "prompt" : mcp.resource ? "resource" : undefined;
  if (kind === undefined) return undefined;
  const target = mcp[kind]?.target ?? "";
  const name = mcp.resource?.uri ?? mcp.tool?.name ?? mcp.prompt?.name ?? "";
  const visible = isCalled && mayUse(exchange, kind, name, target);
  return { kind, name, target: target === "" ? null : target, visible };
}

function mayUse(
  { mcp: { access: mcpAccess, calledTool } }: Exchange,
  kind: DryItem["kind"],
  name: string,
  target: string,
): boolean {
  if (mcpAccess === undefined) return true;
  return mcpAccess.allows(kind, name, target, kind === "tool" ? { arguments: calledTool?.args } : undefined);
}

export function refusedAtEdge(listener: Listener, thrown: unknown): DryReport {
  const { code, message, detail, status } = asGatewayError(thrown);
  return {
    listener: listener.name,
    route: null,
    status,
    outcome: "refused",
    reason: { code, message, detail },
    policies: [],
    shadow: [],
    limits: [],
    backends: [],
    responseHeaders: {},
  };
}
