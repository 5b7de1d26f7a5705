/**
 * Applies guards to a text that may arrive in chunks or be split across several strings. A guard that rejects ignores
 * matches that overlap the masks of earlier guards.
 */

import { ExpectedError } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { TextGuard, TextMatch } from "../request/llm-call.ts";

export class GuardRejection extends ExpectedError {
  readonly status: number;

  constructor(guard: Pick<TextGuard, "rejection">) {
    super(guard.rejection.message);
    this.name = "GuardRejection";
    this.status = guard.rejection.status;
  }
}

/** Called when a guard in shadow mode finds a match. */
export type GuardFound = (guard: TextGuard) => void;

/** Card numbers, most email addresses, and most keys are shorter than this. */
const HELD_CHARACTERS = 128;
/** A match that reaches the end of the received text may continue, so it is held back up to this size. */
const MAX_OPEN_CHARACTERS = peerInput("llm-provider/guarded-text").maxOpen;
/** The time budget of a pattern applies to about this much text. */
const PIECE_CHARACTERS = 16 * 1024;
const BORDER_CHARACTERS = 2 * 1024;

export class GuardedText {
  readonly #guards: readonly TextGuard[];
  readonly #verdict: Verdict;
  /** The next search uses the end of the released text as context. */
  #released = "";
  /** The next match may start at or after this offset of `#released`. The character before it affects `^` and `\b`. */
  #searchFrom = 0;
  #held = "";

  constructor(guards: readonly TextGuard[], found?: GuardFound) {
    this.#guards = guards;
    this.#verdict = new Verdict(found);
  }

  get isHolding(): boolean {
    return this.#held !== "";
  }

  /**
   * Returns the text that can be released. If `isOver` is true, nothing is held back, but more text may still follow.
   * Throws `GuardRejection` if a guard rejects the text and is not in shadow mode.
   */
  *push(text: string, isOver: boolean): Steps<string> {
    let released = "";
    let at = 0;
    do {
      const piece = text.length <= PIECE_CHARACTERS ? text : text.slice(at, at + PIECE_CHARACTERS);
      at += PIECE_CHARACTERS;
      released += yield* this.#pushPiece(piece, isOver && at >= text.length);
    } while (at < text.length);
    return released;
  }

  *#pushPiece(piece: string, isOver: boolean): Steps<string> {
    const text = this.#released + this.#held + piece;
    const from = this.#released.length;
    if (text.length === from) return "";
    let masks: TextMatch[] = [];
    /** These matches reach the end of the text, so more text may extend or invalidate them. */
    const open: TextMatch[] = [];
    let openFrom = text.length;
    let masksBefore = false;
    for (const guard of this.#guards) {
      const own: TextMatch[] = [];
      for (const match of yield* guard.finding(text, this.#searchFrom)) {
        if (match.end < from || (match.end === from && match.start < from)) continue;
        const mayWait = !isOver && text.length - match.start <= MAX_OPEN_CHARACTERS;
        const isOpen = mayWait && match.end === text.length;
        if (guard.action === "mask") {
          if (isOpen) open.push(match);
          else own.push(match);
          if (isOpen) openFrom = Math.min(openFrom, match.start);
        } else if (!overlapsMask(match, masks) && !open.some((one) => overlap(match, one))) {
          // An earlier guard may still mask the text that this guard rejects.
          const isUndecided = masksBefore ? match.end > text.length - HELD_CHARACTERS : isOpen && !match.isCertain;
          if (mayWait && isUndecided) openFrom = Math.min(openFrom, match.start);
          else this.#verdict.reject(guard);
        }
      }
      masksBefore ||= guard.action === "mask";
      if (own.length === 0) continue;
      if (own.some(({ start, end, mask }) => text.slice(start, end) !== mask)) this.#verdict.note(guard);
      masks = merged([...masks, ...own]);
    }
    const cut = isOver ? text.length : cutBefore(text, from, openFrom, masks);
    let released = "";
    let at = from;
    for (const { start, end, mask } of masks) {
      if (start >= cut) break;
      released += text.slice(at, Math.max(at, start)) + mask;
      at = end;
    }
    released += text.slice(at, cut);
    this.#held = text.slice(cut);
    // After an early release, a match may start in released text.
    const context = isOver ? HELD_CHARACTERS : 0;
    this.#released = text.slice(Math.max(0, cut - context - 1), cut);
    this.#searchFrom = Math.max(0, this.#released.length - context);
    return released;
  }
}

/** The strings are parts of one text. Throws `GuardRejection` if a guard rejects the text and `found` is not set. */
export function* guardParts(
  parts: readonly string[],
  guards: readonly TextGuard[],
  found?: GuardFound,
): Steps<readonly string[]> {
  const guarded: string[] = [];
  let isChanged = false;
  for (const part of parts) {
    const seen = part === "" ? "" : yield* new GuardedText(guards, found).push(part, true);
    isChanged ||= seen !== part;
    guarded.push(seen);
    yield;
  }
  const checked = isChanged ? guarded : parts;
  return parts.length < 2 ? checked : yield* guardBorders(checked, guards, new Verdict(found));
}

/**
 * Distributes a replacement for joined strings over them, so that the unchanged start and end stay in their strings.
 */
export function spreadText(parts: readonly string[], replaced: string): readonly string[] {
  const joined = parts.length === 1 ? parts[0] : parts.join("");
  if (joined === undefined || joined === replaced) return parts;
  if (parts.length === 1) return [replaced];
  const most = Math.min(joined.length, replaced.length);
  let prefix = 0;
  while (prefix < most && joined.charCodeAt(prefix) === replaced.charCodeAt(prefix)) prefix += 1;
  let suffix = 0;
  while (
    suffix < most - prefix &&
    joined.charCodeAt(joined.length - 1 - suffix) === replaced.charCodeAt(replaced.length - 1 - suffix)
  )
    suffix += 1;
  const change = {
    start: prefix,
    end: joined.length - suffix,
    mask: replaced.slice(prefix, replaced.length - suffix),
    isCertain: true,
  };
  return withMasks(parts, [change], "");
}

/** Reports each guard at most once, even if a held match is found several times. */
class Verdict {
  readonly #found: GuardFound | undefined;
  readonly #noted = new Set<TextGuard>();

  constructor(found: GuardFound | undefined) {
    this.#found = found;
  }

  reject(guard: TextGuard): void {
    if (this.#found === undefined) throw new GuardRejection(guard);
    this.note(guard);
  }

  note(guard: TextGuard): void {
    if (this.#found === undefined || this.#noted.has(guard)) return;
    this.#noted.add(guard);
    this.#found(guard);
  }
}

/** Returns the offset before which the text can be released. */
function cutBefore(text: string, from: number, openFrom: number, masks: readonly TextMatch[]): number {
  let cut = Math.max(from, Math.min(text.length - HELD_CHARACTERS, openFrom));
  const crossed = masks.find(({ start, end }) => start < cut && cut < end);
  if (crossed)
    cut = crossed.start > from && text.length - crossed.start <= MAX_OPEN_CHARACTERS ? crossed.start : crossed.end;
  const isPairCut = cut > from && cut < text.length && (text.charCodeAt(cut - 1) & 0xfc00) === 0xd800;
  return isPairCut ? cut - 1 : cut;
}

function* guardBorders(
  parts: readonly string[],
  guards: readonly TextGuard[],
  verdict: Verdict,
): Steps<readonly string[]> {
  const joined = parts.join("");
  const borders: number[] = [];
  let at = 0;
  for (const part of parts) {
    at += part.length;
    if (at > (borders.at(-1) ?? 0) && at < joined.length) borders.push(at);
  }
  if (borders.length === 0) return parts;
  let masks: TextMatch[] = [];
  for (const guard of guards) {
    const own: TextMatch[] = [];
    for (const region of regionsAround(borders, joined.length)) {
      const before = region.start === 0 ? 0 : 1;
      const offset = region.start - before;
      const text = joined.slice(offset, region.end);
      for (const found of yield* guard.finding(text, before)) {
        const match = { ...found, start: offset + found.start, end: offset + found.end };
        if (!hasBorderInside(match, borders)) continue;
        if (guard.action === "mask") own.push(match);
        else if (!overlapsMask(match, masks)) verdict.reject(guard);
      }
      yield;
    }
    if (own.length === 0) continue;
    verdict.note(guard);
    masks = merged([...masks, ...own]);
  }
  return masks.length === 0 ? parts : withMasks(parts, masks, undefined);
}

function regionsAround(borders: readonly number[], length: number): { readonly start: number; readonly end: number }[] {
  const regions: { start: number; end: number }[] = [];
  for (const border of borders) {
    const start = Math.max(0, border - BORDER_CHARACTERS);
    const end = Math.min(length, border + BORDER_CHARACTERS);
    const last = regions.at(-1);
    if (last && start <= last.end && end - last.start <= PIECE_CHARACTERS) last.end = end;
    else regions.push({ start, end });
  }
  return regions;
}

/**
 * `filler` replaces a string that would become empty. If undefined, the mask replaces it, because providers reject
 * empty parts.
 */
function withMasks(parts: readonly string[], masks: readonly TextMatch[], filler: string | undefined): string[] {
  let offset = 0;
  let next = 0;
  return parts.map((part) => {
    const begin = offset;
    offset += part.length;
    let text = "";
    let at = begin;
    let mask = "";
    while (next < masks.length) {
      const match = masks[next] as TextMatch;
      if (match.start >= offset && !(match.start === offset && match.end === offset)) break;
      mask = match.mask;
      if (match.start >= begin) text += part.slice(at - begin, match.start - begin) + match.mask;
      at = Math.min(offset, match.end);
      if (match.end > offset) break;
      next += 1;
    }
    text += part.slice(at - begin);
    return text === "" && part !== "" ? (filler ?? mask) : text;
  });
}

/** `masks` are the result of `merged`. */
function overlapsMask(match: TextMatch, masks: readonly TextMatch[]): boolean {
  const next = firstWhere(masks, ({ end }) => end > match.start);
  return next !== undefined && overlap(match, next);
}

function overlap(a: TextMatch, b: TextMatch): boolean {
  return a.start < b.end && b.start < a.end;
}

/** An empty match counts if it is exactly at a border. */
function hasBorderInside({ start, end }: TextMatch, borders: readonly number[]): boolean {
  const [after, before] = start === end ? [start - 1, end + 1] : [start, end];
  const next = firstWhere(borders, (border) => border > after);
  return next !== undefined && next < before;
}

/** Searches a list in which all items after the first one that fits fit too. */
function firstWhere<Item>(items: readonly Item[], fits: (item: Item) => boolean): Item | undefined {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(items[middle] as Item)) high = middle;
    else low = middle + 1;
  }
  return items[low];
}

/** Merges overlapping matches. The mask of the first match applies to the merged match. */
function merged(matches: readonly TextMatch[]): TextMatch[] {
  const result: TextMatch[] = [];
  for (const match of [...matches].sort((a, b) => a.start - b.start)) {
    const last = result.at(-1);
    if (last && match.start < last.end) result[result.length - 1] = { ...last, end: Math.max(last.end, match.end) };
    else result.push(match);
  }
  return result;
}

export interface ShadowGuards {
  found(guard: TextGuard): void;
  unread(guards: readonly TextGuard[], reason: string): void;
}

export function createShadowGuards(exchange: Exchange, direction: "request" | "response"): ShadowGuards {
  const note = (guard: TextGuard, detail: string): void =>
    // Limits count a call before the guards run, so a rejected call is counted too.
    exchange.deniedInShadow("ai", detail, { rule: `promptGuard.${direction}: ${guard.name}`, isCounted: true });
  return {
    found: (guard) => note(guard, `a ${direction} guard would ${guard.action} what matches \`${guard.name}\``),
    unread(guards, reason) {
      for (const guard of guards) note(guard, `a ${direction} guard would reject the ${direction}: ${reason}`);
    },
  };
}
