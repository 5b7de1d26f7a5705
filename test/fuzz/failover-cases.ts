/**
 * The cases of the failover fuzz, by a seed: which targets are asked, how each of them answers or fails, and what the
 * client does meanwhile.
 */

import type { ProviderCall, Script } from "../support/llm/faulty-provider.ts";
import {
  type AnswerPlan,
  answerBytes,
  errorBytes,
  type Family,
  tooLongBytes,
} from "../support/llm/provider-answers.ts";
import { randomFrom } from "../support/random.ts";

const FAMILIES: readonly Family[] = ["openAI", "anthropic"];
export const WORDS = ["alpha", "bravo", "charlie", "delta"];
/** Of the text of an answer: most fit into one packet, some fill every buffer on the way. */
const SMALL = [20, 300, 3_000];
const LARGE = [30_000, 30_000, 200_000];

type Fate = "answers" | "fails before its head" | "breaks after its head" | "either";

interface PlannedTarget {
  readonly plan: AnswerPlan;
  readonly script: Script;
  readonly fate: Fate;
}

export interface Case {
  readonly id: number;
  readonly listener: string;
  readonly client: Family;
  readonly stream: boolean;
  readonly targets: readonly PlannedTarget[];
  readonly slowClient: boolean;
  /** When the client leaves: at the start of a call, after so many bytes, or not before it must. */
  readonly leaves: { readonly atCall: number } | { readonly afterBytes: number } | undefined;
  /** In the order of their coming; the index of the target and the call. */
  readonly calls: { readonly target: number; readonly call: ProviderCall }[];
  onCall: () => void;
  /** Only the time limit, or nothing more, can bring it on. */
  isStuck: boolean;
}

export class Dice {
  readonly #random: () => number;
  constructor(seed: number) {
    this.#random = randomFrom(seed);
  }
  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
  one<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)] as Item;
  }
  chance(share: number): boolean {
    return this.#random() < share;
  }
}

function planTarget(dice: Dice, family: Family, index: number, stream: boolean): PlannedTarget {
  const plan: AnswerPlan = {
    family,
    stream,
    word: WORDS[index] ?? "",
    bytes: dice.one(dice.chance(0.1) ? LARGE : SMALL),
    inputTokens: 100 + index,
    outputTokens: 10 + index,
  };
  if (dice.chance(0.3)) {
    const bytes = dice.chance(0.2) ? tooLongBytes() : errorBytes(dice.one([401, 403, 404, 408, 429, 500, 503, 529]));
    return { plan, script: { bytes, pieceBytes: dice.one([bytes.length, 9]) }, fate: "fails before its head" };
  }
  const bytes = answerBytes(plan);
  const pieceBytes = dice.one([bytes.length, 4_096, Math.max(7, Math.ceil(bytes.length / 200))]);
  if (dice.chance(0.5)) return { plan, script: { bytes, pieceBytes }, fate: "answers" };
  const headBytes = bytes.indexOf("\r\n\r\n") + 4;
  const isEarly = dice.chance(0.5);
  // A chunk begins with its size: some bytes behind the head there is a first byte of the body.
  const stopAt = isEarly
    ? dice.below(headBytes + 1)
    : headBytes + Math.min(9, bytes.length - headBytes - 1) + dice.below(Math.max(1, bytes.length - headBytes - 9));
  const fault = dice.one(["close", "reset", "hang"] as const);
  // A reset may overtake the bytes before it.
  const late: Fate = fault === "reset" ? "either" : "breaks after its head";
  return { plan, script: { bytes, pieceBytes, stopAt, fault }, fate: isEarly ? "fails before its head" : late };
}

export const PATTERNS: readonly (readonly Family[])[] = [["openAI"], ["anthropic"], ["openAI", "anthropic"]];

export function planCase(dice: Dice, id: number): Case {
  const pattern = dice.below(PATTERNS.length);
  const count = 1 + dice.below(WORDS.length);
  const stream = dice.chance(0.5);
  const families = PATTERNS[pattern] ?? FAMILIES;
  return {
    id,
    listener: `p${pattern}n${count}`,
    client: dice.one(FAMILIES),
    stream,
    targets: Array.from({ length: count }, (_, index) =>
      planTarget(dice, families[index % families.length] ?? "openAI", index, stream),
    ),
    slowClient: dice.chance(0.3),
    leaves: dice.chance(0.25)
      ? dice.chance(0.5)
        ? { atCall: 1 + dice.below(count) }
        : { afterBytes: dice.below(50_000) }
      : undefined,
    calls: [],
    onCall: () => undefined,
    isStuck: false,
  };
}
