/**
 * Converts agentgateway's MCP guardrails. Fields without a counterpart stay as they are, so that the loader rejects
 * them and their route is closed.
 */
import { defined } from "../../json/json.ts";
import { asList, asObject, type Conversion, isObject, type Values } from "./conversion.ts";

const FAILURE_MODES: Readonly<Record<string, string>> = { failOpen: "open", failClosed: "closed" };
/** agentgateway has no timeout for these calls. */
const TIMEOUT = "30s";

export function mcpGuardrailsOf(value: unknown, at: string, conversion: Conversion): unknown {
  const { processors, ...others } = asObject(value);
  conversion.differs.push(`${at}: each message waits at most ${TIMEOUT} for a service here; there is no limit there`);
  return { ...others, processors: asList(processors).map((processor) => processorOf(asObject(processor))) };
}

function processorOf({ kind, failureMode, requestHeaders, policies, ...others }: Values): Values {
  const { backendTLS, ...otherPolicies } = asObject(policies);
  const rest = isObject(backendTLS) ? otherPolicies : asObject(policies);
  return defined({
    ...others,
    tls: isObject(backendTLS) ? backendTLS : undefined,
    kind: kind === "remote" ? undefined : kind,
    timeout: TIMEOUT,
    failureMode: typeof failureMode === "string" ? (FAILURE_MODES[failureMode] ?? failureMode) : failureMode,
    requestHeaders: requestHeaders === undefined ? undefined : withoutEmptyLists(asObject(requestHeaders)),
    policies: Object.keys(rest).length === 0 ? undefined : rest,
  });
}

/** An empty list means the default there. */
function withoutEmptyLists(values: Values): Values | undefined {
  const used = Object.entries(values).filter(([, value]) => !Array.isArray(value) || value.length > 0);
  return used.length === 0 ? undefined : Object.fromEntries(used);
}
