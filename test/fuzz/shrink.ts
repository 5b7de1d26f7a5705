/**
 * Makes a case smaller while it still fails in the same way: pieces of bytes, texts and lists are left out, from large to
 * small, then what is left becomes plainer. The names of an object stay.
 */
import { isObject } from "./mutate.ts";
import type { Case } from "./target.ts";

const MAX_TRIES = 1_500;

export async function shrink(input: Case, stillFails: (smaller: Case) => Promise<boolean>): Promise<Case> {
  let best = input;
  let tries = 0;
  for (let progress = true; progress && tries < MAX_TRIES; ) {
    progress = false;
    for (const smaller of smallerThan(best)) {
      tries += 1;
      if (tries > MAX_TRIES) break;
      if (!(await stillFails(smaller))) continue;
      best = smaller;
      progress = true;
      break;
    }
  }
  return best;
}

function* smallerThan(input: Case): Iterable<Case> {
  if (typeof input === "string") yield* smallerTexts(input, "a");
  else if (Buffer.isBuffer(input)) {
    for (const text of smallerTexts(input.toString("latin1"), "a")) yield Buffer.from(text, "latin1");
  } else if (typeof input === "number") {
    if (input !== 0) yield 0;
    if (Math.abs(input) > 1) yield Math.trunc(input / 2);
  } else if (Array.isArray(input)) {
    const list = input as readonly Case[];
    for (let size = list.length; size >= 1; size = Math.floor(size / 2))
      for (let at = 0; at + size <= list.length; at += size) yield [...list.slice(0, at), ...list.slice(at + size)];
    for (const [i, element] of list.entries())
      for (const smaller of smallerThan(element)) yield list.map((one, at) => (at === i ? smaller : one));
  } else if (isObject(input)) {
    for (const [name, value] of Object.entries(input))
      for (const smaller of smallerThan(value)) yield { ...input, [name]: smaller };
  }
}

function* smallerTexts(text: string, plain: string): Iterable<string> {
  for (let size = text.length; size >= 1; size = Math.floor(size / 2))
    for (let at = 0; at + size <= text.length; at += size) yield text.slice(0, at) + text.slice(at + size);
  if (text.length > 256) return;
  for (let at = 0; at < text.length; at++)
    if (text[at] !== plain && !/[\w "{}:,[\]/.-]/.test(text[at] as string))
      yield text.slice(0, at) + plain + text.slice(at + 1);
}
