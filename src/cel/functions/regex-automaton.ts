/**
 * Implements a lazily built DFA for a pattern. The DFA finds whether a string matches, but not where a match begins,
 * so the VM in regex.ts searches from the last position without a partial match (`idleAt`).
 */
import { type Budget, spend } from "./budget.ts";

interface PatternProgram {
  readonly start: number;
  readonly prefix: string;
  /** True if the pattern has zero-width assertions (`^`, `$`, `\b`), which depend on adjacent characters. */
  readonly hasConditions: boolean;
  readonly onlyAtStart: boolean;
  /**
   * Returns the instructions that consume a character and are reachable from `from` without consuming one. `before` and
   * `behind` are the codes of the adjacent characters, or -1 at the ends of the string. `matched` is true if the end of
   * the pattern is reachable.
   */
  reach(from: readonly number[], before: number, behind: number): { waiting: readonly number[]; matched: boolean };
  /** Returns the next instruction if the instruction at `pc` accepts the character, otherwise -1. */
  taken(pc: number, rune: number): number;
}

export interface Scan {
  /** True if a match begins at or after the start of the scan. */
  readonly matched: boolean;
  /** No match begins before this position. */
  readonly idleAt: number;
}

const MAX_STATES = 400;
const WIDE_STEPS_KEPT = 8192;
const RECENT_STEPS = 1024;
const RUNE_BITS = 21;
const ASCII = 128;
const UNITS_PER_STEP = 30;
const UNITS_PER_INSTRUCTION = 3;
const FREE_STATES = 40;
const CHARACTERS_PER_STATE = 32;
const CHARACTERS_PER_UNIT = 24;
/** Looking up the step of a character beyond ASCII takes as long as that of this many more characters. */
const WIDE_CHARACTERS = 6;
const LEAPT_PER_UNIT = 256;
const WORTH_LEAP = 16;
const SHORT_LEAPS_MADE = 16;
const UNKNOWN = -1;
const MATCHED = 0;

/** Assertions distinguish these classes of preceding characters, and one code represents each class. */
const CODES_BEFORE = { begin: -1, lineBreak: 10, word: 97, other: 32 } as const;

const LAST_IDLE = Object.keys(CODES_BEFORE).length;

interface State {
  readonly waiting: readonly number[];
  readonly before: number;
  readonly wide: Map<number, number>;
  matchesAtEnd: boolean | undefined;
}

export class RegexAutomaton {
  readonly #program: PatternProgram;
  readonly #states: State[] = [];
  readonly #numbers = new Map<string, number>();
  #steps = new Int16Array(8 * ASCII).fill(UNKNOWN);
  /** Pairs of a state with a rune, and the next state. Maps take several times as long. */
  readonly #recent = new Int32Array(2 * RECENT_STEPS).fill(UNKNOWN);
  #wideSteps = 0;
  #readCharacters = 0;

  constructor(program: PatternProgram) {
    this.#program = program;
    // State 0 is the completed match and has no transitions. The idle states, which have no partial match, follow it.
    this.#add("", [], CODES_BEFORE.other);
    for (const before of Object.values(CODES_BEFORE)) this.#add(`${before}:`, [], before);
  }

  /** True if the pattern needs too many states, so that no scan succeeds. */
  get isFull(): boolean {
    return this.#states.length >= MAX_STATES;
  }

  /** Returns undefined if the scan needs more states than the characters that were read are worth. */
  scan(text: string, from: number, budget: Budget): Scan | undefined {
    const { prefix, onlyAtStart } = this.#program;
    const { length } = text;
    let first = prefix === "" ? -1 : prefix.charCodeAt(0);
    let shortLeaps = 0;
    let steps = this.#steps;
    const recent = this.#recent;
    let number = this.#idle(text, from);
    let idleAt = from;
    let paidTo = from;
    let countedTo = from;
    let i = from;
    while (i < length) {
      const code = text.charCodeAt(i);
      if (number <= LAST_IDLE) {
        idleAt = i;
        if (onlyAtStart && i > 0) break;
        if (first >= 0 && code !== first) {
          const leap = text.indexOf(prefix, i);
          const end = leap < 0 ? length : leap;
          spend(budget, 1 + (i - paidTo) / CHARACTERS_PER_UNIT + (end - i) / LEAPT_PER_UNIT);
          if (leap < 0) return { matched: false, idleAt: length };
          if (leap - i < WORTH_LEAP && ++shortLeaps > SHORT_LEAPS_MADE) first = -1;
          paidTo = leap;
          i = leap;
          number = this.#idle(text, i);
          continue;
        }
      }
      let next = code < ASCII ? (steps[(number << 7) | code] as number) : UNKNOWN;
      i += 1;
      if (next <= MATCHED) {
        if (next === UNKNOWN) {
          const rune = code < ASCII ? code : (text.codePointAt(i - 1) as number);
          if (rune > 0xffff) i += 1;
          if (rune >= ASCII) paidTo -= WIDE_CHARACTERS;
          const key = (number << RUNE_BITS) | rune;
          const slot = ((rune + number) % RECENT_STEPS) * 2;
          if (recent[slot] === key) next = recent[slot + 1] as number;
          else {
            this.#readCharacters += i - countedTo;
            countedTo = i;
            next = this.#states[number]?.wide.get(rune) ?? this.#step(number, rune, budget);
            steps = this.#steps;
            if (next !== UNKNOWN) {
              recent[slot] = key;
              recent[slot + 1] = next;
            }
          }
          if (next === UNKNOWN) {
            spend(budget, (i - paidTo) / CHARACTERS_PER_UNIT);
            return undefined;
          }
        }
        if (next === MATCHED) {
          spend(budget, (i - paidTo) / CHARACTERS_PER_UNIT);
          return { matched: true, idleAt };
        }
      }
      number = next;
    }
    spend(budget, 1 + (i - paidTo) / CHARACTERS_PER_UNIT);
    if (i < length) return { matched: false, idleAt: length };
    if (number <= LAST_IDLE) idleAt = length;
    return { matched: this.#matchesAtEnd(number), idleAt };
  }

  #idle(text: string, position: number): number {
    return this.#numberOf([], position === 0 ? CODES_BEFORE.begin : kindOf(text.charCodeAt(position - 1)));
  }

  #step(number: number, rune: number, budget: Budget): number {
    const state = this.#states[number] as State;
    const { waiting, matched } = this.#reached(state, rune);
    spend(budget, UNITS_PER_STEP + waiting.length * UNITS_PER_INSTRUCTION);
    let next = MATCHED;
    if (!matched) {
      const taken = new Set<number>();
      for (const pc of waiting) {
        const behind = this.#program.taken(pc, rune);
        if (behind >= 0) taken.add(behind);
      }
      next = this.#numberOf(
        [...taken].sort((a, b) => a - b),
        kindOf(rune),
      );
    }
    if (next === UNKNOWN) return next;
    if (rune < ASCII) this.#steps[number * ASCII + rune] = next;
    else if (this.#wideSteps < WIDE_STEPS_KEPT) {
      this.#wideSteps += 1;
      state.wide.set(rune, next);
    }
    return next;
  }

  #matchesAtEnd(number: number): boolean {
    const state = this.#states[number] as State;
    state.matchesAtEnd ??= this.#reached(state, -1).matched;
    return state.matchesAtEnd;
  }

  /** The result includes the start of the pattern, because a match can begin at every position. */
  #reached({ waiting, before }: State, behind: number): { waiting: readonly number[]; matched: boolean } {
    return this.#program.reach([...waiting, this.#program.start], before, behind);
  }

  #numberOf(waiting: readonly number[], before: number): number {
    const kind = this.#program.hasConditions ? before : CODES_BEFORE.other;
    const key = `${kind}:${waiting.join(",")}`;
    return this.#numbers.get(key) ?? this.#add(key, waiting, kind);
  }

  #add(key: string, waiting: readonly number[], before: number): number {
    const number = this.#states.length;
    const isWorth = number < FREE_STATES || number * CHARACTERS_PER_STATE < this.#readCharacters;
    if (number >= MAX_STATES || !isWorth) return UNKNOWN;
    if ((number + 1) * ASCII > this.#steps.length) {
      const larger = new Int16Array(this.#steps.length * 2).fill(UNKNOWN);
      larger.set(this.#steps);
      this.#steps = larger;
    }
    this.#states.push({ waiting, before, wide: new Map(), matchesAtEnd: undefined });
    this.#numbers.set(key, number);
    return number;
  }
}

function kindOf(code: number): number {
  if (code === 10) return CODES_BEFORE.lineBreak;
  return isWord(code) ? CODES_BEFORE.word : CODES_BEFORE.other;
}

export function isWord(code: number): boolean {
  return (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95;
}
