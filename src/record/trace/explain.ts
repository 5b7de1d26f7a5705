/**
 * Describes one request in sentences: method and path, route, the policies that passed or rejected it and why, the
 * backend that responded, and the outcome. The result depends only on the request record.
 */
import { ageText, durationText } from "../../base/format.ts";
import type { RecordedStep, RequestRecord } from "./record.ts";

const DENIALS: Readonly<Record<string, string>> = {
  authorization_denied: "Denied",
  rate_limited: "Limited",
};

export function explainRequest(record: RequestRecord): string[] {
  return [
    arrival(record),
    ...routeTaken(record),
    ...policiesPassed(record),
    ...limited(record),
    ...shadowed(record),
    ...tried(record),
    ...verdict(record),
    ...checked(record),
    ...answer(record),
    ...ending(record),
    ...usage(record),
  ];
}

/**
 * Returns the sentence that explains the outcome of a request that did not simply succeed: the policy that rejected or
 * answered it, the failure, the backend's own error, or how the response ended.
 */
export function explainOutcome(record: RequestRecord): string | undefined {
  const { status, end, answeredBy } = record;
  const [decided] = verdict(record);
  if (decided !== undefined) return decided;
  const isSuccess = status !== null && status >= 200 && status < 300;
  if (!isSuccess && answeredBy === "upstream") {
    const [responded = ""] = answer(record);
    return (status ?? 0) < 400 ? responded : `${responded} The error is the backend's: no policy rejected the request.`;
  }
  if (end !== "complete") return ending(record)[0];
  if (isSuccess) return failedCall(record);
  return answeredBy === null
    ? `The response had status ${status ?? "unknown"}. Its source is no longer known.`
    : `The gateway responded with ${status ?? "no status"}.`;
}

/** An MCP server can report an error inside a response with status 200. */
function failedCall({ mcp }: RequestRecord): string | undefined {
  if (mcp?.outcome !== "tool_error" && mcp?.outcome !== "rpc_error") return undefined;
  const server = mcp.target === undefined ? "The server" : `Server \`${mcp.target}\``;
  const call = mcp.name === undefined ? `\`${mcp.method}\`` : `\`${mcp.method}\` of \`${mcp.name}\``;
  return `${server} returned an error for ${call} (\`${mcp.outcome}\`). The error is the server's: no policy rejected the call.`;
}

function arrival({ method, host, path, listener, source, subject, time, mcp }: RequestRecord): string {
  const who = subject === null ? "" : ` as \`${subject}\``;
  const call = mcp?.method === undefined ? "" : ` (MCP \`${mcp.method}\`${mcp.name ? ` of \`${mcp.name}\`` : ""})`;
  return `${method} ${host}${path}${call} from ${source.client ?? source.address}${who} at ${time}, on listener \`${listener}\`.`;
}

function routeTaken({ route, failure }: RequestRecord): string[] {
  if (route !== null) return [`Route \`${route}\` matched.`];
  return failure?.code === "route_not_found" ? [] : ["The gateway answered before it selected a route."];
}

function policiesPassed({ steps }: RequestRecord): string[] {
  const passed = steps.filter(({ verdict }) => verdict === "passed");
  if (passed.length === 0) return [];
  const byPhase = (["gateway", "route", "backend"] as const)
    .map((phase) => ({ phase, kinds: [...new Set(passed.filter((step) => step.phase === phase).map(describeStep))] }))
    .filter(({ kinds }) => kinds.length > 0);
  return [`Passed: ${byPhase.map(({ phase, kinds }) => `${kinds.join(", ")} (${phase})`).join("; ")}.`];
}

function limited({ limits = [] }: RequestRecord): string[] {
  return limits.map(
    ({ limit, remaining, resetSeconds }) =>
      `Limit \`${limit}\`: ${remaining} left, resets in ${ageText(resetSeconds * 1000)}.`,
  );
}

function shadowed({ shadow = [] }: RequestRecord): string[] {
  return shadow.map(
    ({ policy, reason }) => `Not enforced (shadow mode): \`${policy}\` would reject it: ${sentence(reason)}`,
  );
}

function tried({ attempts = [] }: RequestRecord): string[] {
  return attempts.map(({ target, provider, status, error, durationMs, retryReason }, at) => {
    const server = provider === undefined ? `\`${target}\`` : `provider \`${provider}\` at \`${target}\``;
    const outcome = status === null ? "failed" : `responded with ${status}`;
    const after = durationMs === null ? "" : ` after ${durationText(durationMs)}`;
    const why = error ?? (retryReason === `status ${status}` ? undefined : retryReason);
    return `Attempt ${at + 1}: ${server} ${outcome}${after}${why === undefined ? "." : `: ${sentence(why)}`}`;
  });
}

function verdict({ failure, steps, route, listener, status, backend }: RequestRecord): string[] {
  const answeredBy = steps.find((step) => step.verdict === "answered");
  if (failure === undefined)
    return answeredBy
      ? [
          `Policy \`${answeredBy.policy}\` of ${describeScope(answeredBy, route, listener, backend)} answered the request${code(status)}.`,
        ]
      : [];
  const why = sentence(failure.detail ?? failure.message);
  const refusedBy = steps.findLast((step) => step.verdict === "refused");
  if (refusedBy && failure.source !== "upstream") {
    const verb = DENIALS[failure.code] ?? "Rejected";
    return [
      `${verb} by \`${refusedBy.policy}\` of ${describeScope(refusedBy, route, listener, backend)}${code(status)}: ${why}`,
    ];
  }
  if (failure.code === "route_not_found") return [`No route matched${code(status)}: ${why}`];
  const blame = {
    client: "The request was rejected",
    upstream: `Backend \`${backend ?? "?"}\` failed`,
    gateway: "The gateway failed",
  }[failure.source];
  return [`${blame} (\`${failure.code}\`${status === null ? "" : `, ${status}`}): ${why}`];
}

/** One line for each rule. A denial by several `allow` rules needs only one of them. */
function checked({ rules = [] }: RequestRecord): string[] {
  return rules.map(({ kind, rule, isMet, values }) => {
    const text = kind === "require" ? `\`${rule}\`` : `${kind}: \`${rule}\``;
    return `${isMet ? "✓" : "✗"} ${text}${values === undefined ? "" : `: ${values}`}`;
  });
}

function answer({ answeredBy, backend, status, upstreamMs, failure, steps }: RequestRecord): string[] {
  if (answeredBy === null || failure !== undefined) return [];
  if (answeredBy === "gateway") {
    const isOwn = backend !== null && upstreamMs === null && !steps.some(({ verdict }) => verdict === "answered");
    return isOwn ? [`The gateway responded with ${status}, and sent no request to backend \`${backend}\`.`] : [];
  }
  const after = upstreamMs === null ? "" : ` after ${durationText(upstreamMs)}`;
  return [`Backend \`${backend ?? "?"}\` responded with ${status ?? "nothing"}${after}.`];
}

function ending({ end, durationMs, responseBytes, status }: RequestRecord): string[] {
  const took = durationText(durationMs);
  if (end === "aborted") return [`The client disconnected after ${took}, ${responseBytes} bytes into the response.`];
  if (end === "failed") return [`The response was cut off after ${took} and ${responseBytes} bytes.`];
  return [`Finished with ${status === null ? "no status" : `status ${status}`} after ${took}, ${responseBytes} bytes.`];
}

function usage({ llm }: RequestRecord): string[] {
  if (llm?.model === undefined) return [];
  return [tokens(llm, llm.model), ...dropped(llm)];
}

function dropped({ dropped: names = [], provider }: NonNullable<RequestRecord["llm"]>): string[] {
  if (names.length === 0) return [];
  return [
    `Left out, because \`${provider ?? "the provider"}\` does not support it: ${names.map((name) => `\`${name}\``).join(", ")}.`,
  ];
}

function tokens(llm: NonNullable<RequestRecord["llm"]>, model: string): string {
  const provider = llm.provider === undefined ? "" : ` (${llm.provider})`;
  if (llm.inputTokens === undefined && llm.outputTokens === undefined)
    return `Model \`${model}\`${provider}: no tokens.`;
  const cached = llm.cachedTokens ? `, ${llm.cachedTokens} of them cached` : "";
  return `Model \`${model}\`${provider}: ${llm.inputTokens ?? 0} tokens in${cached}, ${llm.outputTokens ?? 0} out.`;
}

function describeScope(step: RecordedStep, route: string | null, listener: string, backend: string | null): string {
  if (step.phase === "gateway") return `gateway \`${listener}\``;
  if (step.of !== undefined) return `${kindAndName(step.of)} of backend \`${backend ?? "?"}\``;
  if (step.phase === "backend") return `backend \`${backend ?? "?"}\``;
  return route === null ? `listener \`${listener}\`` : `route \`${route}\``;
}

function describeStep({ policy, of, micros }: RecordedStep): string {
  const name = of === undefined ? policy : `${policy} of ${kindAndName(of)}`;
  return micros >= 1000 ? `${name} ${durationText(micros / 1000)}` : name;
}

/** Formats `model fast` as model `fast`. */
function kindAndName(of: string): string {
  return of.replace(/ (.*)$/s, " `$1`");
}

function code(status: number | null): string {
  return status === null ? "" : ` (${status})`;
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
