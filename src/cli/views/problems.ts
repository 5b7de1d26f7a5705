/**
 * Lists the current problems of a gateway, the most urgent first. `gwctl status` and the web UI show the same list.
 */

import { ageText } from "../../base/format.ts";
import type { TrafficRows } from "../../record/trace/traffic-numbers.ts";
import { nearlyEmpty } from "./limit-buckets.ts";
import { llmProvidersOf } from "./llm-providers.ts";
import { mcpServersOf } from "./mcp-servers.ts";
import { counted, type Fields, fieldsOf, listOf, stringsOf } from "./units.ts";

/** Failed and rejected requests of this time are problems. */
export const PROBLEM_SECONDS = 900;

export interface Problem {
  /** `bad`: something does not work. `warn`: the gateway works as configured, and somebody should look at it. */
  readonly level: "bad" | "warn";
  readonly text: string;
  readonly area: "process" | "config" | "mcp" | "llm" | "limits" | "requests";
  /** The requests of an `area: "requests"`. A code is a status, or a code of the gateway's errors. */
  readonly route?: string;
  readonly code?: string;
}

export interface ProblemSources {
  /** Either `ready`, or `not ready, pending: …`. */
  readonly readiness: string;
  readonly dump: Fields;
  readonly tasks: readonly Fields[];
  readonly rules: readonly Fields[];
  /** Failed and rejected requests of the last `PROBLEM_SECONDS`. */
  readonly errors: Pick<TrafficRows, "rows">;
}

export function problemsOf({ readiness, dump, tasks, rules, errors }: ProblemSources): Problem[] {
  const reload = fieldsOf(dump.reload);
  const problem =
    (level: Problem["level"], area: Problem["area"]) =>
    (text: string): Problem => ({ level, text, area });
  const found = [
    ...(readiness === "ready" ? [] : [readinessText(readiness)].map(problem("bad", "process"))),
    ...stringsOf(fieldsOf(reload.refused).problems)
      .map((text) => `The last reload was rejected, and the configuration before it is active: ${text}`)
      .map(problem("bad", "config")),
    ...mcpServersOf(dump, tasks)
      .filter(({ state }) => state === "failing")
      .map(({ target, lastError, sessions }) => {
        const where = sessions > 0 ? "failed in some sessions" : "failed";
        const text = `MCP server ${target} ${where}${lastError === undefined ? "" : `: ${lastError}`}`;
        return problem(sessions > 0 ? "warn" : "bad", "mcp")(text);
      }),
    ...llmProvidersOf(dump)
      .filter(({ state }) => state !== "ok")
      .map(({ name, text }) => `LLM provider ${name} is ${text}`)
      .map(problem("bad", "llm")),
    ...listOf(dump.backends)
      .filter(({ health }) => fieldsOf(health).resting === true)
      .map(({ name }) => `Backend ${name} cannot be reached; its route uses the other backends`)
      .map(problem("bad", "config")),
    ...errorProblems(errors, "failed"),
    ...listOf(dump.backends)
      .filter(({ canary }) => fieldsOf(canary).state === "withdrawn")
      .map(({ name, canary }) => `Canary ${name} was withdrawn: ${fieldsOf(canary).reason}`)
      .map(problem("warn", "config")),
    ...nearlyEmpty(rules)
      .filter(({ remaining }) => remaining <= 0)
      .map(
        ({ owner, key, resetSeconds }) =>
          `Limit of ${owner} is exhausted for ${key}; it resets in ${ageText(resetSeconds * 1000)}`,
      )
      .map(problem("warn", "limits")),
    ...errorProblems(errors, "rejected"),
    ...stringsOf(reload.needsRestart)
      .map((field) => `${field} changed: restart the gateway to apply it`)
      .map(problem("warn", "config")),
    ...stringsOf(reload.warnings).map(problem("warn", "config")),
  ];
  return [...found.filter(({ level }) => level === "bad"), ...found.filter(({ level }) => level === "warn")];
}

function readinessText(readiness: string): string {
  return readiness.includes("draining")
    ? "The gateway is shutting down: it completes requests and accepts no new ones"
    : `The gateway is ${readiness}`;
}

function errorProblems({ rows }: ProblemSources["errors"], result: "failed" | "rejected"): Problem[] {
  return rows
    .filter(({ name }) => name[1] === result)
    .map(({ name: [route = "", , code = ""], requests }) => ({
      level: result === "failed" ? "bad" : "warn",
      text: `${counted(requests, "request")} ${route === "" ? "without a route" : `to ${route}`} ${resultText(result, code)} in the last ${ageText(PROBLEM_SECONDS * 1000)}`,
      area: "requests",
      route,
      code,
    }));
}

function resultText(result: string, code: string): string {
  return /^\d+$/.test(code) ? `${result} with status ${code}` : `${result} (${code})`;
}
