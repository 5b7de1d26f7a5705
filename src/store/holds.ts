/**
 * Amounts of a counter that their owner holds for a while, for example reservations of running calls. They count in the
 * total. What an owner does not renew in time ends by itself, because its process ended. Each operation has a number, so
 * that one that is repeated after a lost reply counts once. The script in Redis does the same (`ADD_HELD`).
 */

export interface Hold {
  /** Must not contain spaces or line breaks. The empty owner holds nothing, and only ends what others do not renew. */
  readonly owner: string;
  /** Increases by 1 with each operation of the owner on this counter. A repeated operation keeps it. 0 is not checked. */
  readonly sequence: number;
  /** Added to the total and to what the owner holds, within the limit. */
  readonly taken?: number;
  /** Ends this amount of the reservations of the owner. An owner cannot end more than it has reserved. */
  readonly released?: number;
  /** What the owner holds, at least or exactly. It differs if operations were lost, or if it was not renewed in time. */
  readonly renewed?: { readonly amount: number; readonly isExact: boolean };
  readonly forMs: number;
}

/** Reads a counter without what ended. */
export const ONLY_ENDED: Hold = { owner: "", sequence: 0, forMs: 0 };

/** How long an owner's last number is kept, so that operations can be repeated for that long. */
export const NUMBERS_KEPT_MS = 600_000;
/** An operation that was lost leaves a gap between the numbers. Earlier gaps are forgotten. */
export const MAX_GAPS = 64;

export function holdsKey(key: string): string {
  return `holds/${key}`;
}

/** What each owner holds, in the order in which they began. */
export type Holders = Map<string, Holder>;

interface Holder {
  held: number;
  untilMs: number;
  last: number;
  gaps: number[];
}

export interface HeldResult {
  readonly isAdded: boolean;
  readonly total: number;
}

/** Changes `holders`. `before` is undefined if the counter does not exist. */
export function addHeld(
  before: number | undefined,
  holders: Holders,
  amount: number,
  limit: number | undefined,
  hold: Hold,
  nowMs: number,
): HeldResult {
  let total = before ?? 0;
  for (const [owner, holder] of holders) {
    if (before === undefined) holder.held = 0;
    if (holder.untilMs > nowMs) continue;
    total = Math.max(0, total - holder.held);
    holder.held = 0;
    if (holder.untilMs + NUMBERS_KEPT_MS <= nowMs) holders.delete(owner);
  }
  const { owner, sequence, taken = 0, released = 0, renewed, forMs } = hold;
  if (owner === "") return { isAdded: true, total };
  const holder = holders.get(owner) ?? { held: 0, untilMs: 0, last: Math.max(0, sequence - 1), gaps: [] };
  holders.set(owner, holder);
  const isRepeated = sequence > 0 && !isNew(holder, sequence);
  holder.untilMs = nowMs + forMs;
  let isAdded = true;
  if (!isRepeated) {
    const ended = Math.min(holder.held, released);
    const next = total - ended + amount + taken;
    isAdded = limit === undefined || amount + taken <= 0 || next <= limit;
    if (isAdded) {
      total = next;
      holder.held += taken - ended;
    }
  }
  if (renewed !== undefined) {
    const held = renewed.isExact ? renewed.amount : Math.max(holder.held, renewed.amount);
    total += held - holder.held;
    holder.held = held;
  }
  return { isAdded, total: Math.max(0, total) };
}

/** Also remembers the number. */
function isNew(holder: Holder, sequence: number): boolean {
  if (sequence > holder.last) {
    for (let lost = Math.max(holder.last + 1, sequence - MAX_GAPS); lost < sequence; lost++) holder.gaps.push(lost);
    if (holder.gaps.length > MAX_GAPS) holder.gaps = holder.gaps.slice(-MAX_GAPS);
    holder.last = sequence;
    return true;
  }
  const at = holder.gaps.indexOf(sequence);
  if (at >= 0) holder.gaps.splice(at, 1);
  return at >= 0;
}

/** One line per owner: its name, what it holds, until when, the last number, and the gaps or `-`. */
export function parseHolders(text: string | undefined): Holders {
  const holders: Holders = new Map();
  for (const line of (text ?? "").split("\n")) {
    const [owner = "", held, untilMs, last, gaps = "-"] = line.split(" ");
    if (owner === "") continue;
    holders.set(owner, {
      held: Number(held),
      untilMs: Number(untilMs),
      last: Number(last),
      gaps: gaps === "-" ? [] : gaps.split(",").map(Number),
    });
  }
  return holders;
}

export function formatHolders(holders: Holders): string {
  let text = "";
  for (const [owner, { held, untilMs, last, gaps }] of holders) {
    if (text !== "") text += "\n";
    text += `${owner} ${held} ${untilMs} ${last} ${gaps.length === 0 ? "-" : gaps.join(",")}`;
  }
  return text;
}
