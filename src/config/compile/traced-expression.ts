/**
 * Adds the evaluations of an expression to the trace of the request, with secrets redacted.
 */
import type { EvaluationResult, Expression, ExpressionOptions } from "../../cel/expression.ts";
import { CelAttributes } from "../../core/cel-attributes.ts";
import type { CelOutcome } from "../../record/trace/record.ts";
import { REDACTED, type Redaction, withoutCopies } from "../../record/trace/redact.ts";

/** These attributes contain raw client input, which may include credentials. */
const CARRIERS = ["request.uri", "request.pathAndQuery", "request.body", "response.body"];
const HEADERS = /^(?:request|response)\.headers\.(.+)$/;
const MAX_SHOWN_CHARS = 2048;

export function traceEvaluations(redaction: Redaction, isHidden: boolean): ExpressionOptions {
  let mayCarry: boolean | undefined;
  return {
    shown: (source) => (isHidden ? REDACTED : redaction.expression(source)),
    traced(expression, attributes, result) {
      mayCarry ??= mayCarrySecrets(expression, redaction);
      const hides = mayCarry || isCopy(result, CelAttributes.secretsOf(attributes));
      const outcome = outcomeOf(result, isHidden, hides);
      const message = { type: "cel", expression: expression.source, result: outcome } as const;
      CelAttributes.traceOf(attributes)?.point(message, result.ok ? "info" : "warn");
    },
  };
}

function mayCarrySecrets(expression: Expression, redaction: Redaction): boolean {
  return (
    CARRIERS.some((path) => expression.reads(path)) ||
    (redaction.isSensitive("host") && expression.reads("request.host")) ||
    [...expression.paths].some((path) => readsSensitiveHeader(path, redaction))
  );
}

/** Returns true if the result contains one of the secrets. */
function isCopy(result: EvaluationResult, secrets: readonly string[]): boolean {
  if (!result.ok || secrets.length === 0) return false;
  const text = typeof result.value === "string" ? result.value : (JSON.stringify(result.value) ?? "");
  return withoutCopies(text, secrets) !== text;
}

function readsSensitiveHeader(path: string, redaction: Redaction): boolean {
  const name = HEADERS.exec(path)?.[1];
  if (name !== undefined) return redaction.isSensitive(name);
  return path === "request.headers" || path === "response.headers";
}

function outcomeOf(result: EvaluationResult, isHidden: boolean, mayCarrySecrets: boolean): CelOutcome {
  if (!result.ok) return { error: isHidden || mayCarrySecrets ? "the evaluation failed" : result.error };
  const { value } = result;
  // Booleans are shown, because they contain no secret.
  if (typeof value === "boolean") return { value };
  if (isHidden || mayCarrySecrets) return { value: REDACTED };
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length <= MAX_SHOWN_CHARS ? { value } : { value: `${text.slice(0, MAX_SHOWN_CHARS)}…` };
}

/** Collects the values of a policy whose key is a sensitive name. */
export function hiddenSources(config: unknown, redaction: Redaction, found = new Set<string>()): Set<string> {
  if (typeof config !== "object" || config === null) return found;
  for (const [key, value] of Object.entries(config)) {
    if (typeof value === "string" && redaction.isSensitive(key)) found.add(value);
    else hiddenSources(value, redaction, found);
  }
  return found;
}
