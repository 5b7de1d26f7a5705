/**
 * Warns of policies that stand where they can never do anything: a token limit in front of MCP servers alone, rules for
 * tools where there are none.
 */
import type { PlacedPolicy } from "../load/normal-config.ts";
import type { Path } from "../text/value-path.ts";
import type { Site, SitedPolicy } from "./site.ts";
import { type Warn, warningAt } from "./warning.ts";

interface Idle {
  readonly policy: string;
  /** The kinds of backends that it is for. */
  readonly backends: readonly string[];
  /** The places below the policy that it concerns. */
  places(config: unknown): readonly Path[];
  readonly message: string;
}

interface Limits {
  readonly local?: readonly { readonly tokens?: number }[];
  readonly global?: { readonly descriptors: readonly { readonly type: string }[] };
}

const IDLE: readonly Idle[] = [
  {
    policy: "rateLimit",
    backends: ["ai", "host"],
    places: (config) => {
      const { local = [], global } = config as Limits;
      return [
        ...indexes(local, ({ tokens }) => tokens !== undefined).map((i) => ["local", i]),
        ...indexes(global?.descriptors ?? [], ({ type }) => type === "tokens").map((i) => ["global", "descriptors", i]),
      ];
    },
    message: "a token limit counts LLM calls, and no backend here takes any: use `requests`",
  },
  {
    policy: "budgets",
    backends: ["ai", "host"],
    places: () => [[]],
    message: "budgets count LLM calls, and no backend here takes any",
  },
  {
    policy: "mcpAuthorization",
    backends: ["mcp"],
    places: () => [[]],
    message: "these rules are for MCP servers, and no MCP backend is reached from here",
  },
  {
    policy: "ai",
    backends: ["ai"],
    places: () => [[]],
    message: "this policy is for LLM calls, and no LLM backend is reached from here",
  },
];

export function checkPolicy({ policy, site }: SitedPolicy, warn: Warn): void {
  for (const row of IDLE) {
    if (row.policy !== policy.kind || canReach(site, row.backends)) continue;
    for (const path of row.places(policy.config)) warn(warningAt(policy.place, path, messageOf(row, policy)));
  }
}

function messageOf({ message }: Idle, { kind }: PlacedPolicy): string {
  return `${kind} has no effect here: ${message}`;
}

function canReach({ routes, backends }: Site, kinds: readonly string[]): boolean {
  return routes.length === 0 || backends.some(({ key }) => kinds.includes(key));
}

function indexes<Entry>(list: readonly Entry[], holds: (entry: Entry) => boolean): number[] {
  return list.flatMap((entry, i) => (holds(entry) ? [i] : []));
}
