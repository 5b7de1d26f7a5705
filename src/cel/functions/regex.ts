/**
 * Matches regular expressions in linear time. The CEL library's RE2 engine compiles a pattern, and this file runs the
 * compiled program in a Pike VM, which visits each instruction at most once per character and charges every visit to
 * the budget.
 */
import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { compileRe2 } from "../../base/regex.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import { type Budget, CHARACTERS_PER_UNIT, spend } from "./budget.ts";
import { isWord, RegexAutomaton, type Scan } from "./regex-automaton.ts";

const VISITS_PER_UNIT = 1.25;
const SEARCH_VISITS = 60;
/** The DFA is built after the pattern has read this many characters. */
const WORTH_CHARACTERS = 512;
const MAX_GENERATION = 0xffffffff;
const COMPUTED = peerInput("client/computed-pattern");
const MAX_COMPUTED_PATTERN = peerInput("client/computed-pattern").maxBytes;

/** The engine has the same instruction set as Go's regexp/syntax. */
const ALT = 1;
const ALT_MATCH = 2;
const CAPTURE = 3;
const EMPTY_WIDTH = 4;
const FAIL = 5;
const MATCH = 6;
const NOP = 7;

const BEGIN_LINE = 1;
const END_LINE = 2;
const BEGIN_TEXT = 4;
const END_TEXT = 8;
const WORD_BOUNDARY = 16;
const NO_WORD_BOUNDARY = 32;

export interface Regex {
  /**
   * True if the pattern has zero-width assertions (`^`, `$`, `\b`), so that a match can depend on the characters around
   * it.
   */
  readonly hasConditions: boolean;
  test(text: string, budget: Budget): boolean;
  replaceAll(text: string, replacement: string, budget: Budget): string;
  /** Works like `replaceAll`, but yields after each match. */
  replacing(text: string, replacement: string, budget: Budget): Steps<string>;
  /**
   * Finds the non-overlapping matches at or after `from`, leftmost first. Empty matches (`^`, `\b`) are included only
   * on request. Yields after each match.
   */
  finding(text: string, from: number, budget: Budget, withEmpty?: boolean): Steps<TextSpan[]>;
}

interface TextSpan {
  readonly start: number;
  readonly end: number;
}

type Wanted = "whether" | "bounds" | "groups";
type Captures = readonly number[];
const NO_CAPTURES: Captures = [];

/** Threads are in order of preference. `mark[pc] === generation` means that the list already has a thread at `pc`. */
interface Threads {
  readonly pcs: number[];
  readonly captures: Captures[];
  readonly mark: Uint32Array;
  generation: number;
}

export function compileRegex(input: PeerInput<"regular expression">, pattern: string): Regex {
  const engine = compileRe2(input, pattern).re2();
  const { prog, prefix, prefixComplete } = engine;
  const instructions = Array.from({ length: prog.numInst() }, (_, pc) => prog.getInst(pc));
  const groupNames = engine.namedGroups;
  const hasConditions = instructions.some(({ op }) => op === EMPTY_WIDTH);
  const onlyAtStart = (prog.startCond() & BEGIN_TEXT) !== 0;

  // A search never yields, so all searches with a pattern can share these buffers.
  let current = createThreads(instructions.length);
  let next = createThreads(instructions.length);
  const stackPcs: number[] = [];
  const stackCaptures: Captures[] = [];

  /**
   * Adds the instructions that consume a character and are reachable from `start` without consuming one. Returns the
   * number of visits.
   */
  function addThreads(list: Threads, start: number, conditions: number, position: number, from: Captures): number {
    const tracking = from.length > 0;
    let visits = 0;
    stackPcs.push(start);
    if (tracking) stackCaptures.push(from);
    for (let pc = stackPcs.pop(); pc !== undefined; pc = stackPcs.pop()) {
      const captures = tracking ? (stackCaptures.pop() ?? from) : from;
      const instruction = instructions[pc];
      if (instruction === undefined || list.mark[pc] === list.generation) continue;
      list.mark[pc] = list.generation;
      visits++;
      switch (instruction.op) {
        case ALT:
        case ALT_MATCH:
          // The preferred branch is pushed last, so that it is popped first.
          stackPcs.push(instruction.arg, instruction.out);
          if (tracking) stackCaptures.push(captures, captures);
          break;
        case EMPTY_WIDTH:
          if ((instruction.arg & ~conditions) !== 0) break;
          stackPcs.push(instruction.out);
          if (tracking) stackCaptures.push(captures);
          break;
        case NOP:
          stackPcs.push(instruction.out);
          if (tracking) stackCaptures.push(captures);
          break;
        case CAPTURE:
          stackPcs.push(instruction.out);
          if (instruction.arg < from.length) {
            stackCaptures.push(captures.with(instruction.arg, position));
            visits += captures.length;
          } else if (tracking) stackCaptures.push(captures);
          break;
        case FAIL:
          break;
        default:
          list.pcs.push(pc);
          if (tracking) list.captures.push(captures);
      }
    }
    return visits;
  }

  /** Finds the leftmost match at or after `from`. Returns a pair of offsets per group that `wanted` requires. */
  function search(text: string, from: number, wanted: Wanted, budget: Budget): Captures | undefined {
    clear(current);
    clear(next);
    stackPcs.length = 0;
    stackCaptures.length = 0;
    let found: Captures | undefined;
    const boundsWanted = wanted !== "whether";
    let visits = boundsWanted ? SEARCH_VISITS : 0;
    const noCaptures: Captures = boundsWanted ? new Array<number>(wanted === "bounds" ? 2 : prog.numCap).fill(-1) : [];
    for (let position = from, conditions = -1; position <= text.length; ) {
      if (current.pcs.length === 0) {
        if (found !== undefined || (onlyAtStart && position > 0)) break;
        // No partial match is pending, so the search can skip to the next occurrence of the prefix.
        if (prefix !== "") {
          const leap = text.indexOf(prefix, position);
          if (leap < 0) break;
          if (leap > position) conditions = -1;
          position = leap;
        }
      }
      if (conditions < 0) conditions = hasConditions ? conditionsAt(text, position) : 0;
      if (found === undefined) {
        const captures = boundsWanted ? noCaptures.with(0, position) : noCaptures;
        visits += captures.length + addThreads(current, prog.start, conditions, position, captures);
      }
      const rune = text.codePointAt(position) ?? -1;
      const width = rune > 0xffff ? 2 : 1;
      const after = position + width;
      const conditionsAfter = hasConditions ? conditionsAt(text, after) : 0;
      for (let index = 0; index < current.pcs.length; index++) {
        const pc = current.pcs[index] ?? 0;
        const captures = current.captures[index] ?? noCaptures;
        const instruction = instructions[pc];
        visits++;
        if (instruction?.op === MATCH) {
          if (!boundsWanted) {
            spend(budget, visits / VISITS_PER_UNIT);
            return noCaptures;
          }
          found = captures.with(1, position);
          // The remaining threads have lower preference, so their matches are ignored.
          break;
        }
        if (rune >= 0 && instruction?.matchRune(rune)) {
          visits += addThreads(next, instruction.out, conditionsAfter, after, captures);
        }
      }
      [current, next] = [next, clear(current)];
      position = after;
      conditions = conditionsAfter;
      if (visits > budget.left * VISITS_PER_UNIT) break;
    }
    spend(budget, visits / VISITS_PER_UNIT);
    return found;
  }

  let automaton: RegexAutomaton | undefined;
  let hasAutomaton = true;
  let readCharacters = 0;
  /** Returns undefined if the caller must use `search`. */
  function scan(text: string, from: number, budget: Budget): Scan | undefined {
    if (!hasAutomaton) return undefined;
    if (automaton === undefined) {
      readCharacters += text.length - from;
      if (readCharacters < WORTH_CHARACTERS) return undefined;
    }
    automaton ??= new RegexAutomaton({
      start: prog.start,
      prefix,
      hasConditions,
      onlyAtStart,
      reach(starts, before, behind) {
        clear(next);
        const conditions = hasConditions ? conditionsBetween(before, behind) : 0;
        for (const start of starts) addThreads(next, start, conditions, 0, NO_CAPTURES);
        const waiting = [...next.pcs];
        return { waiting, matched: waiting.some((pc) => instructions[pc]?.op === MATCH) };
      },
      taken(pc, rune) {
        const instruction = instructions[pc];
        return instruction?.op !== MATCH && instruction?.matchRune(rune) ? instruction.out : -1;
      },
    });
    const scanned = automaton.scan(text, from, budget);
    if (scanned === undefined && automaton.isFull) {
      hasAutomaton = false;
      automaton = undefined;
    }
    return scanned;
  }

  return {
    hasConditions,
    test(text, budget) {
      if (prefixComplete) {
        spend(budget, 1 + text.length / CHARACTERS_PER_UNIT);
        return text.includes(prefix);
      }
      return scan(text, 0, budget)?.matched ?? search(text, 0, "whether", budget) !== undefined;
    },
    replaceAll: (text, replacement, budget) => finish(replacing(text, replacement, budget)),
    replacing,
    finding,
  };

  function* finding(text: string, from: number, budget: Budget, withEmpty = false): Steps<TextSpan[]> {
    const found: TextSpan[] = [];
    const last = withEmpty ? text.length : text.length - 1;
    for (let at = from; at <= last; ) {
      const scanned = scan(text, at, budget);
      if (scanned?.matched === false) break;
      const match = search(text, scanned?.idleAt ?? at, "bounds", budget);
      if (match === undefined) break;
      const [start = 0, end = 0] = match;
      if (end > start || withEmpty) found.push({ start, end });
      at = end > start ? end : start + ((text.codePointAt(start) ?? 0) > 0xffff ? 2 : 1);
      spend(budget, 1);
      yield;
    }
    return found;
  }

  function* replacing(text: string, replacement: string, budget: Budget): Steps<string> {
    let result = "";
    let copied = 0;
    for (let from = 0; from <= text.length; ) {
      const scanned = scan(text, from, budget);
      if (scanned?.matched === false) break;
      const match = search(text, scanned?.idleAt ?? from, replacement.includes("$") ? "groups" : "bounds", budget);
      if (match === undefined) break;
      const [start = 0, end = 0] = match;
      // As in RE2, an empty match directly after the previous match is ignored.
      if (end > start || start > copied || copied === 0) {
        result += text.slice(copied, start) + expand(replacement, text, match, groupNames);
        copied = end;
      }
      from = end > start ? end : start + ((text.codePointAt(start) ?? 0) > 0xffff ? 2 : 1);
      spend(budget, 1 + replacement.length / VISITS_PER_UNIT);
      yield;
    }
    return result + text.slice(copied);
  }
}

export function compileComputedRegex(pattern: string, budget: Budget): Regex {
  if (pattern.length > MAX_COMPUTED_PATTERN) {
    throw new Error(`a computed pattern may have at most ${MAX_COMPUTED_PATTERN} characters`);
  }
  spend(budget, 100 + pattern.length * 20);
  return compileRegex(COMPUTED, pattern);
}

/** Replaces `$1`, `${1}` and `${name}` with groups, and `$$` with a dollar sign. */
function expand(replacement: string, text: string, match: Captures, names: ReadonlyMap<string, number>): string {
  if (!replacement.includes("$")) return replacement;
  return replacement.replace(
    /\$(?:(\$)|(\d{1,3})|\{(\w+)\})/g,
    (_whole, dollar?: string, number?: string, key = "") => {
      if (dollar !== undefined) return "$";
      const group = names.get(key) ?? Number(number ?? key);
      const start = match[2 * group] ?? -1;
      return start < 0 ? "" : text.slice(start, match[2 * group + 1]);
    },
  );
}

function conditionsAt(text: string, position: number): number {
  const before = position > 0 ? text.charCodeAt(position - 1) : -1;
  const after = position < text.length ? text.charCodeAt(position) : -1;
  return conditionsBetween(before, after);
}

/** `before` and `after` are the codes of the adjacent characters, or -1 at the ends of the string. */
function conditionsBetween(before: number, after: number): number {
  let conditions = isWord(before) === isWord(after) ? NO_WORD_BOUNDARY : WORD_BOUNDARY;
  if (before < 0) conditions |= BEGIN_TEXT | BEGIN_LINE;
  if (before === 10) conditions |= BEGIN_LINE;
  if (after < 0) conditions |= END_TEXT | END_LINE;
  if (after === 10) conditions |= END_LINE;
  return conditions;
}

function createThreads(size: number): Threads {
  return { pcs: [], captures: [], mark: new Uint32Array(size), generation: 1 };
}

function clear(list: Threads): Threads {
  list.pcs.length = 0;
  list.captures.length = 0;
  // A frequently used pattern can exhaust the 32-bit generation counter.
  if (++list.generation > MAX_GENERATION) {
    list.mark.fill(0);
    list.generation = 1;
  }
  return list;
}
