/**
 * Reads the health of LLM providers from `/config_dump`.
 */
import { type Fields, fieldsOf, listOf, numberOf } from "./units.ts";

export interface LlmProvider {
  readonly name: string;
  readonly provider: string;
  readonly state: "ok" | "failing" | "paused";
  /** Describes the state with its numbers, for example `failing (7 of 7 calls in 5 min)`. */
  readonly text: string;
}

export function llmProvidersOf(dump: Fields): LlmProvider[] {
  return listOf(dump.backends)
    .filter(({ type }) => type === "ai")
    .flatMap((backend) => listOf(backend.targets))
    .map(llmProviderOf);
}

export function llmProviderOf(target: Fields): LlmProvider {
  const { name, provider, target: address, resting, failures } = target;
  const { calls, failed } = fieldsOf(target.recent);
  const results = numberOf(calls) === 0 ? "" : ` (${numberOf(failed)} of ${numberOf(calls)} calls in 5 min)`;
  const state = resting === true ? "paused" : numberOf(failures) > 0 ? "failing" : "ok";
  const words = { paused: "paused after failures", failing: "failing", ok: "available" };
  return {
    name: String(name ?? provider),
    provider: String(provider ?? address ?? ""),
    state,
    text: `${words[state]}${state === "ok" ? "" : results}`,
  };
}
