/**
 * Selects the phases in which a processor gets the messages of a method. An exact name wins over `prefix*`, which wins
 * over `*suffix`, which wins over `*`. Among patterns of the same kind, the longest wins.
 */
export type Phase = "off" | "request" | "response" | "full";

export interface Phases {
  readonly request: boolean;
  readonly response: boolean;
}

const NONE: Phases = { request: false, response: false };

/**
 * Methods that transport the content of another method. Without an entry of their own, the phases of that method apply
 * to them as well, so that a client cannot avoid a processor by using them.
 */
const CARRIED: readonly (readonly [method: RegExp, carries: string])[] = [
  [/^tasks\//, "tools/call"],
  [/^server\/discover$/, "initialize"],
  [/^subscriptions\/listen$/, "resources/subscribe"],
];

/** Accepts an exact name, `*`, and a name with one `*` at its start or end. */
export function isMethodPattern(pattern: string): boolean {
  return /^(?:[^*]+\*?|\*[^*]*)$/.test(pattern);
}

export function phasesOf(methods: Readonly<Record<string, Phase>>, method: string): Phases {
  const [pattern, rank] = bestPattern(methods, method);
  const own = pattern === undefined ? NONE : toPhases(methods[pattern]);
  const carried = CARRIED.find(([carrier]) => carrier.test(method))?.[1];
  if (carried === undefined || rank >= PREFIX) return own;
  const other = phasesOf(methods, carried);
  return { request: own.request || other.request, response: own.response || other.response };
}

const ANY = 1;
const SUFFIX = 2;
const PREFIX = 3;
const EXACT = 4;

function bestPattern(
  methods: Readonly<Record<string, Phase>>,
  method: string,
): readonly [pattern: string | undefined, rank: number] {
  let best: string | undefined;
  let bestRank = 0;
  for (const pattern of Object.keys(methods).sort()) {
    const rank = rankOf(pattern, method);
    if (rank === 0 || rank < bestRank) continue;
    if (rank === bestRank && pattern.length <= (best?.length ?? 0)) continue;
    best = pattern;
    bestRank = rank;
  }
  return [best, bestRank];
}

/** Returns 0 if the pattern does not match. */
function rankOf(pattern: string, method: string): number {
  if (pattern === method) return EXACT;
  if (pattern === "*") return ANY;
  if (pattern.endsWith("*")) return method.startsWith(pattern.slice(0, -1)) ? PREFIX : 0;
  return pattern.startsWith("*") && method.endsWith(pattern.slice(1)) ? SUFFIX : 0;
}

function toPhases(phase: Phase | undefined): Phases {
  return {
    request: phase === "request" || phase === "full",
    response: phase === "response" || phase === "full",
  };
}
