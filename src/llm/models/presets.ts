/**
 * Compatible providers that are known by name: where their API begins, and in what they differ from OpenAI.
 */

import { OPENAI_CHAT } from "../providers/openai.ts";
import { CHAT_HABITS, type ChatHabits } from "../request/provider.ts";

interface Preset {
  readonly baseUrl: string;
  /** It has the Responses API. */
  readonly responses?: true;
  /** It refuses `stream_options`; its streams carry usage all the same. */
  readonly streamUsage?: false;
}

export const PRESETS = {
  baseten: { baseUrl: "https://inference.baseten.co/v1" },
  cerebras: { baseUrl: "https://api.cerebras.ai/v1" },
  cohere: { baseUrl: "https://api.cohere.ai/compatibility/v1", streamUsage: false },
  deepinfra: { baseUrl: "https://api.deepinfra.com/v1/openai" },
  deepseek: { baseUrl: "https://api.deepseek.com/v1" },
  fireworks: { baseUrl: "https://api.fireworks.ai/inference/v1", responses: true },
  groq: { baseUrl: "https://api.groq.com/openai/v1", responses: true },
  huggingface: { baseUrl: "https://router.huggingface.co/v1", responses: true },
  mistral: { baseUrl: "https://api.mistral.ai/v1", streamUsage: false },
  ollama: { baseUrl: "http://localhost:11434/v1", responses: true },
  openrouter: { baseUrl: "https://openrouter.ai/api/v1", responses: true },
  togetherai: { baseUrl: "https://api.together.xyz/v1" },
  xai: { baseUrl: "https://api.x.ai/v1", responses: true },
} as const satisfies Readonly<Record<string, Preset>>;

/** They refuse members that they do not know. */
const WITHOUT_TOP_K = new Set(["cerebras", "cohere", "deepseek", "groq", "xai"]);

/** How a provider of this name wants chat requests. */
export function habitsOf(name: string): ChatHabits {
  if (name === "openai") return OPENAI_CHAT;
  if (name === "mistral" || name === "api.mistral.ai")
    return { ...CHAT_HABITS, topK: false, user: false, seed: "random_seed", required: "any" };
  return WITHOUT_TOP_K.has(name) ? { ...CHAT_HABITS, topK: false } : CHAT_HABITS;
}

export function presetOf(name: keyof typeof PRESETS): Preset {
  return PRESETS[name];
}
