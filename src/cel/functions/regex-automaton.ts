/**
 * A pattern as a machine with one state at a time, built while texts are read: each character of a text then costs one
 * look into a table, some 30 times less than the threads of `regex.ts`. It knows whether and how far a text must be
 * read for a match, not where the match begins; for that the threads run, from the last place where nothing was open.
 * A pattern that needs too many states is left to the threads.
 */
import { type Budget, spend } from "./budget.ts";

/** What reading of a pattern at one place needs: the engine's program, see `regex.ts`. */
export interface PatternProgram {
  readonly start: number;
  readonly prefix: string;
  /** Whether it has conditions about what stands before or behind a place. */
  readonly hasConditions: boolean;
  /** A match can begin nowhere but at the start of the text. */
  readonly onlyAtStart: boolean;
  /**
   * The instructions that wait for a character and can be reached from these without one, given what stands before and
   * behind (character codes, -1 for the ends of the text). `matched` if the end of the pattern is among them.
   */
  reach(from: readonly number[], before: number, behind: number): { waiting: readonly number[]; matched: boolean };
  /** The instruction behind this one if it takes the character; -1 if it does not. */
  taken(pc: number, rune: number): number;
}

export interface Scan {
  /** False: no match begins at or after the place where the scan began. */
  readonly matched: boolean;
  /** No match begins before it. */
  readonly idleAt: number;
}

/** A state costs 256 bytes; patterns for identifiers and words have 5 to 60. */
const MAX_STATES = 400;
/** Of characters outside ASCII, over all states. */
const WIDE_STEPS_KEPT = 8192;
/** A power of two, so that the table is indexed by bits. */
const ASCII = 128;
/** What it costs to find a state that is not in the table yet, beside its instructions; measured 2 to 4 µs. */
const UNITS_PER_STEP = 30;
const UNITS_PER_INSTRUCTION = 3;
/** So many states every pattern may have; more only while each of them reads as many characters as it costs. */
const FREE_STATES = 40;
const CHARACTERS_PER_STATE = 32;
/** Measured 7 to 15 ns each. */
const CHARACTERS_PER_UNIT = 8;
/** A native search reads some bytes in a nanosecond. */
const LEAPT_PER_UNIT = 256;
/** A native search costs as much as the table for some characters: where the beginning of a match is everywhere, it loses. */
const WORTH_LEAP = 16;
const SHORT_LEAPS_MADE = 16;
const UNKNOWN = -1;
const MATCHED = 0;

/** What of the text before a place decides whether a condition holds. */
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
  #wideSteps = 0;
  #readCharacters = 0;

  constructor(program: PatternProgram) {
    this.#program = program;
    // Number 0 stands for a match that has ended: nothing follows it. Then those in which nothing has begun yet.
    this.#add("", [], CODES_BEFORE.other);
    for (const before of Object.values(CODES_BEFORE)) this.#add(`${before}:`, [], before);
  }

  /** Undefined if the pattern needs too many states. */
  scan(text: string, from: number, budget: Budget): Scan | undefined {
    const { prefix, onlyAtStart } = this.#program;
    const { length } = text;
    let first = prefix === "" ? -1 : prefix.charCodeAt(0);
    let shortLeaps = 0;
    let steps = this.#steps;
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
          this.#readCharacters += i - countedTo;
          countedTo = i;
          next = this.#states[number]?.wide.get(rune) ?? this.#step(number, rune, budget);
          steps = this.#steps;
          if (next === UNKNOWN) return undefined;
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

  /** A match may begin at each place. */
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
