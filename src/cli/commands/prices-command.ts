/**
 * `gwctl prices import`: converts a local copy of LiteLLM's `model_prices_and_context_window.json` to a catalog for
 * `modelCatalog`.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { defined } from "../../json/json.ts";
import { readJson } from "../../json/read-json.ts";
import { isData, printData } from "../terminal/output.ts";
import { CliError, printable, type Terminal } from "../terminal/terminal.ts";

const DATA = peerInput("file/prices");

export interface ImportFlags {
  readonly output?: string;
  readonly provider?: readonly string[];
}

export function importPrices(file: string, flags: ImportFlags, terminal: Terminal): void {
  const { providers } = fromLitellm(readData(file));
  const wanted = flags.provider === undefined ? undefined : new Set(flags.provider);
  const chosen: Catalogue = {
    providers: Object.fromEntries(Object.entries(providers).filter(([name]) => wanted?.has(name) ?? true)),
  };
  const count = Object.values(chosen.providers).reduce((sum, { models }) => sum + Object.keys(models).length, 0);
  if (count === 0) {
    const known = Object.keys(providers).join(", ");
    throw new CliError(
      known === "" ? `${file} has no prices that can be used` : `no such provider; ${file} has ${known}`,
    );
  }
  const { output = "json" } = flags;
  if (isData(output)) printData(chosen, output, terminal);
  else writeFileSync(output, `${JSON.stringify(chosen, null, 1)}\n`);
  terminal.err(printable(`${count} models of ${Object.keys(chosen.providers).join(", ")}\n`));
}

function readData(file: string): Readonly<Record<string, unknown>> {
  try {
    const data: unknown = readJson(DATA, readFileSync(file));
    if (typeof data === "object" && data !== null && !Array.isArray(data)) return data as Record<string, unknown>;
  } catch (error) {
    throw new CliError(
      error instanceof InputError ? `${file} ${error.message}` : `${file}: ${(error as Error).message}`,
    );
  }
  throw new CliError(`${file} is not a JSON object`);
}

// Prices are in US dollars per million tokens. Models that are not priced per token, and prices for batch, flex, and
// priority processing, are omitted.

type Json = Readonly<Record<string, unknown>>;

export interface CatalogueRates {
  input: number;
  output: number;
  cacheRead?: number;
  cacheWrite?: number;
  reasoning?: number;
  tiers?: CatalogueTier[];
}

export interface CatalogueTier {
  above: number;
  input: number;
  output: number;
  cacheRead?: number;
  cacheWrite?: number;
}

export interface Catalogue {
  providers: Record<string, { models: Record<string, { rates: CatalogueRates }> }>;
}

/** Maps LiteLLM's provider name to the gateway's name. The prefix is removed from LiteLLM's model names. */
const PROVIDERS: readonly (readonly [theirs: string, ours: string, prefix: string])[] = [
  ["openai", "openai", ""],
  ["text-completion-openai", "openai", ""],
  ["anthropic", "anthropic", ""],
  ["gemini", "gcp.gemini", "gemini/"],
  ["vertex_ai-language-models", "gcp.vertex_ai", "vertex_ai/"],
  ["vertex_ai-anthropic_models", "gcp.vertex_ai", "vertex_ai/"],
  ["vertex_ai-embedding-models", "gcp.vertex_ai", "vertex_ai/"],
  ["bedrock", "aws.bedrock", ""],
  ["bedrock_converse", "aws.bedrock", ""],
  ["azure", "azure", "azure/"],
  ["cohere_chat", "cohere", ""],
  ["cohere", "cohere", ""],
  ["mistral", "mistral", "mistral/"],
  ["groq", "groq", "groq/"],
  ["deepseek", "deepseek", "deepseek/"],
  ["xai", "xai", "xai/"],
  ["cerebras", "cerebras", "cerebras/"],
  ["together_ai", "togetherai", "together_ai/"],
  ["fireworks_ai", "fireworks", "fireworks_ai/"],
  ["deepinfra", "deepinfra", "deepinfra/"],
];

const MODES = new Set(["chat", "responses", "completion", "embedding"]);
const TIER = /^input_cost_per_token_above_(\d+)k_tokens$/;
const DIGITS = 9;

export function fromLitellm(data: Json): Catalogue {
  const providers: Catalogue["providers"] = {};
  for (const [name, value] of Object.entries(data)) {
    const entry = typeof value === "object" && value !== null ? (value as Json) : {};
    const known = PROVIDERS.find(([theirs]) => theirs === entry.litellm_provider);
    const rates = MODES.has(String(entry.mode)) ? ratesOf(entry) : undefined;
    if (known === undefined || rates === undefined) continue;
    const [, ours, prefix] = known;
    const model = name.startsWith(prefix) ? name.slice(prefix.length) : name;
    if (model === "" || (model.includes("/") && !SLASHED.has(ours))) continue;
    providers[ours] ??= { models: {} };
    providers[ours].models[model] ??= { rates };
  }
  return { providers };
}

const SLASHED = new Set(["togetherai", "fireworks", "deepinfra", "groq"]);

function ratesOf(entry: Json): CatalogueRates | undefined {
  const input = perMillion(entry.input_cost_per_token);
  const output = perMillion(entry.output_cost_per_token) ?? (entry.mode === "embedding" ? 0 : undefined);
  if (input === undefined || output === undefined) return undefined;
  const reasoning = perMillion(entry.output_cost_per_reasoning_token);
  const tiers = Object.keys(entry)
    .flatMap((key) => TIER.exec(key)?.[1] ?? [])
    .map((thousands) => tierOf(entry, thousands, input, output))
    .sort((one, other) => one.above - other.above);
  return {
    input,
    output,
    ...cacheRates(entry, ""),
    ...(reasoning === undefined || reasoning === output ? {} : { reasoning }),
    ...(tiers.length === 0 ? {} : { tiers }),
  };
}

function tierOf(entry: Json, thousands: string, input: number, output: number): CatalogueTier {
  const suffix = `_above_${thousands}k_tokens`;
  return {
    above: Number(thousands) * 1000,
    input: perMillion(entry[`input_cost_per_token${suffix}`]) ?? input,
    output: perMillion(entry[`output_cost_per_token${suffix}`]) ?? output,
    ...cacheRates(entry, suffix),
  };
}

function cacheRates(entry: Json, suffix: string): { cacheRead?: number; cacheWrite?: number } {
  const cacheRead = perMillion(entry[`cache_read_input_token_cost${suffix}`]);
  const cacheWrite = perMillion(entry[`cache_creation_input_token_cost${suffix}`]);
  return {
    ...defined({ cacheRead, cacheWrite }),
  };
}

function perMillion(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0
    ? Number((value * 1_000_000).toFixed(DIGITS))
    : undefined;
}
