/**
 * Compares what LiteLLM and the gateway did for a call. Differences that are known have a reason.
 */
import type { Call, Observed, Sent } from "./litellm-calls.ts";

export interface Difference {
  readonly call: string;
  readonly field: string;
  readonly theirs: unknown;
  readonly ours: unknown;
  /** Undefined for a difference that must not exist. */
  readonly reason: string | undefined;
}

/** These files need more than a stand-in for providers. */
export const NOT_COMPARED: Readonly<Record<string, string>> = {
  fallbacks: "Vertex AI needs a login at Google Cloud",
  "usage-routing": "its routing depends on counters in Redis",
  guarded: "its callback needs a license",
  wildcards: "its guardrail needs a Presidio service",
};

interface Compared {
  readonly call: Call;
  readonly theirs: Observed;
  readonly ours: Observed;
  /** The imported configuration, with its comments. */
  readonly golden: string;
}

interface Known {
  readonly reason: string | ((compared: Compared) => string);
  readonly fields: readonly string[];
  applies(compared: Compared): boolean;
}

const hosts = (sent: readonly Sent[]): string => sent.map(({ to }) => new URL(to).host).join();
const isSentTo = (observed: Observed, pattern: RegExp): boolean => observed.sent.some(({ to }) => pattern.test(to));
const failureOf = (call: Call): string | undefined => Object.values(call.failing ?? {})[0];

/** The comment of the import that names the model of the call, without its place. */
function comment({ call, golden }: Compared, place: "model_list\\[\\d+\\]" | "llm\\.models"): string | undefined {
  const line = new RegExp(`^# - ${place} \\((.+?)\\): (.*)$`);
  const matches = golden.split("\n").map((text) => line.exec(text));
  return matches.find((match) => match?.[1] === call.body.model)?.[2];
}

const leftOut = (compared: Compared): string | undefined => comment(compared, "model_list\\[\\d+\\]");
const closed = (compared: Compared): string | undefined => comment(compared, "llm\\.models");

const KNOWN: readonly Known[] = [
  {
    reason: (compared) => `the import closes the model: ${closed(compared)}`,
    fields: ["destinations", "status", "answer"],
    applies: (compared) => compared.ours.status === 403 && closed(compared) !== undefined,
  },
  {
    reason: (compared) => `the import leaves the model out: ${leftOut(compared)}`,
    fields: ["destinations", "status", "answer"],
    applies: (compared) => compared.ours.status === 404 && leftOut(compared) !== undefined,
  },
  {
    reason: "both reject the call, LiteLLM with another status",
    fields: ["status"],
    applies: ({ theirs, ours }) =>
      theirs.status >= 400 && ours.status >= 400 && hosts(theirs.sent) === hosts(ours.sent),
  },
  {
    reason: "LiteLLM rejects parameters that it does not list for the model",
    fields: ["destinations", "status", "answer"],
    applies: ({ call, theirs }) => call.body.stop !== undefined && theirs.status === 400 && theirs.sent.length === 0,
  },
  {
    reason:
      "without `max_tokens`, LiteLLM sends 4096 for models of Anthropic that it does not list, the gateway the maximum",
    fields: ["settings"],
    applies: ({ call, theirs }) => call.body.max_tokens === undefined && isSentTo(theirs, /\/messages$/),
  },
  {
    reason: "LiteLLM sends models of Gemini that it does not list to v1alpha, with a temperature",
    fields: ["destinations", "settings"],
    applies: ({ theirs }) => isSentTo(theirs, /\/v1alpha\//),
  },
  {
    reason: "LiteLLM uses the API of Ollama itself, the gateway the compatible API of the same server",
    fields: ["destinations", "texts", "credentials"],
    applies: ({ theirs, ours }) =>
      isSentTo(theirs, /\/api\/(?:chat|generate)$/) && hosts(theirs.sent) === hosts(ours.sent),
  },
  {
    reason: "LiteLLM translates chat completions for this model to the Responses API (listed in the comments)",
    fields: ["destinations", "texts", "status", "answer"],
    applies: ({ theirs, call }) =>
      call.body.model === "responses" && (theirs.status === 400 || isSentTo(theirs, /\/responses$/)),
  },
  {
    reason: "the gateway does not fail over after a 400 that the content caused (`content_policy_fallbacks` is listed)",
    fields: ["destinations", "status", "answer"],
    applies: ({ call }) => failureOf(call) === "content",
  },
];

export function compareObserved(
  call: Call,
  theirs: Observed | undefined,
  ours: Observed | undefined,
  golden: string,
): Difference[] {
  if (theirs === undefined || ours === undefined)
    return [{ call: call.name, field: "call", theirs, ours, reason: undefined }];
  const compared = { call, theirs, ours, golden };
  const found: Difference[] = [];
  const check = (field: string, there: unknown, here: unknown): void => {
    if (JSON.stringify(there) === JSON.stringify(here)) return;
    const known = KNOWN.find((one) => one.fields.includes(field) && one.applies(compared));
    const reason = typeof known?.reason === "function" ? known.reason(compared) : known?.reason;
    found.push({ call: call.name, field, theirs: there, ours: here, reason });
  };
  const shortened = (list: readonly Sent[]): string[] => list.map(({ to, model }) => `${to} ${model}`);
  check("destinations", shortened(theirs.sent), shortened(ours.sent));
  for (const [i, there] of theirs.sent.entries()) {
    const here = ours.sent[i];
    if (here === undefined) continue;
    for (const field of ["credentials", "headers", "settings", "texts"] as const)
      check(field, there[field], here[field]);
  }
  check("status", theirs.status, ours.status);
  check("answer", theirs.answer, ours.answer);
  return found;
}
