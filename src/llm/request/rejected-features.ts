/**
 * Features that some servers lack. The gateway recognizes the first rejection, repeats the call without the feature, and
 * omits the feature for this server until the configuration changes, or until a call without it fails in the same way.
 */
import { isMembers, type Members } from "../../json/json.ts";
import { isStreamOptionsError, mayNameField } from "./llm-errors.ts";

/** `namespaces` are groups of tools in requests of the Responses API, which Codex sends for MCP servers. */
export type Feature = "stream_options" | "responses" | "namespaces" | OmittedFeature;

/** A call can be sent without these features of its body. `developer` is the role of messages. */
export type OmittedFeature = "parallel_tool_calls" | "developer";

interface FeatureCheck {
  /** Whether the status can mean that the server lacks the feature. */
  readonly hasStatus: (status: number) => boolean;
  readonly isNamed: (body: string) => boolean;
  /** True if nothing names the feature, so that a call without it that fails with such a status shows another cause. */
  readonly isGuess?: true;
  /** The log line and the reason of the repeated attempt. */
  readonly rejection: string;
  readonly consequence: string;
}

/** A model, a stored response, or a file that does not exist is also 404. */
const NAMES_OBJECT = /model|prompt|previous|conversation|file_|file-|_id\b|with id/i;

export const FEATURES: Readonly<Record<Feature, FeatureCheck>> = {
  stream_options: {
    hasStatus: mayNameField,
    isNamed: isStreamOptionsError,
    rejection: "the provider rejects stream_options",
    consequence: "the tokens of its streams are estimated",
  },
  responses: {
    hasStatus: (status) => status === 404 || status === 405 || status === 501,
    isNamed: (body) => !NAMES_OBJECT.test(body),
    isGuess: true,
    rejection: "the provider has no Responses API",
    consequence: "these requests are translated to chat completions",
  },
  namespaces: {
    hasStatus: mayNameField,
    isNamed: (body) => /namespace/i.test(body),
    rejection: "the provider rejects namespaces of tools",
    consequence: "these requests are translated to chat completions",
  },
  parallel_tool_calls: {
    hasStatus: mayNameField,
    isNamed: (body) => /parallel_tool_calls/i.test(body),
    rejection: "the provider rejects parallel_tool_calls",
    consequence: "calls are sent without it",
  },
  developer: {
    hasStatus: mayNameField,
    // Templates of chat messages name only the role, or only the roles that they know.
    isNamed: (body) => /developer|\brole/i.test(body),
    isGuess: true,
    rejection: "the provider rejects the role developer",
    consequence: "these messages are sent with the role system",
  },
};

const OMITTED: readonly (readonly [OmittedFeature, Buffer])[] = [
  ["parallel_tool_calls", Buffer.from('"parallel_tool_calls"')],
  ["developer", Buffer.from('"developer"')],
];

/** Returns the features that the body may use. Texts can contain the names too. */
export function omittedFeatures(body: Buffer): readonly OmittedFeature[] {
  return OMITTED.filter(([, written]) => body.includes(written)).map(([feature]) => feature);
}

export function withoutFeature(body: Members, feature: OmittedFeature): Members {
  if (feature === "parallel_tool_calls") {
    const { parallel_tool_calls: _, ...others } = body;
    return others;
  }
  const { messages } = body;
  if (!Array.isArray(messages)) return body;
  return { ...body, messages: messages.map((one) => (isDeveloper(one) ? { ...one, role: "system" } : one)) };
}

function isDeveloper(message: unknown): message is Members {
  return isMembers(message) && message.role === "developer";
}

/** Forgets features that a server seemed to lack, if a call without them gets this status too. */
export function forgetGuesses(rejected: Set<Feature>, status: number): void {
  for (const feature of rejected)
    if (FEATURES[feature].isGuess && FEATURES[feature].hasStatus(status)) rejected.delete(feature);
}

/** Returns the feature of the call that the server rejected. */
export function rejectedFeature(used: readonly Feature[], status: number, body: string): Feature | undefined {
  return used.find((feature) => FEATURES[feature].hasStatus(status) && FEATURES[feature].isNamed(body));
}
