/**
 * Reads the health of LLM providers from `/config_dump`.
 */
import { ageText } from "../../base/format.ts";
import { counted, type Fields, fieldsOf, listOf, numberOf } from "./units.ts";

/** A provider without calls is not failing forever: after this time, its last failure says little. */
const FAILING_MS = 300_000;

export interface LlmProvider {
  readonly name: string;
  readonly provider: string;
  readonly state: "ok" | "failing" | "paused";
  /**
   * Describes the state with its numbers, for example `available (1 of 17 calls failed, the last 12 min ago)`, and the
   * features that the server rejected.
   */
  readonly text: string;
}

export function llmProvidersOf(dump: Fields): LlmProvider[] {
  return listOf(dump.backends)
    .filter(({ type }) => type === "ai")
    .flatMap((backend) => listOf(backend.targets))
    .map(llmProviderOf);
}

export function llmProviderOf(target: Fields): LlmProvider {
  const { name, provider, target: address, resting, failures, lastFailureAgoMs, lacks } = target;
  const { calls, failed } = fieldsOf(target.recent);
  const isRecent = typeof lastFailureAgoMs !== "number" || lastFailureAgoMs < FAILING_MS;
  const state = resting === true ? "paused" : numberOf(failures) > 0 && isRecent ? "failing" : "ok";
  const words = { paused: "paused after failures", failing: "failing", ok: "available" };
  const last = typeof lastFailureAgoMs === "number" ? `, the last ${ageText(lastFailureAgoMs)} ago` : "";
  const results = `${numberOf(failed)} of ${counted(numberOf(calls), "call")} failed in the last hour${last}`;
  return {
    name: String(name ?? provider),
    provider: String(provider ?? address ?? ""),
    state,
    text: `${words[state]}${numberOf(failed) > 0 ? ` (${results})` : ""}${lacksText(lacks)}`,
  };
}

function lacksText(lacks: unknown): string {
  if (!Array.isArray(lacks) || lacks.length === 0) return "";
  return `; called without ${lacks.map(String).join(", ")}, which the server rejected`;
}
