/**
 * Handles global keyboard shortcuts. Keys pressed before their target is rendered are queued, and text typed after a
 * queued `/` is inserted into the search field.
 */
import { type EarlyKeys, isPaletteKey } from "./early-keys.ts";
import { PAGES } from "./pages.ts";
import { isPaletteOpen } from "./palette-state.ts";
import { navigate, pageHref } from "./router.ts";

const SEQUENCE_MS = 1_000;
const ENTRIES = "main .pick :is(a, button), main table.requests tbody a, main .flow .node";
const SEARCH = "main [data-search]";

const waiting: KeyboardEvent[] = [];
let pressedG = Number.NEGATIVE_INFINITY;

export function startKeys(): void {
  const drawn = new MutationObserver(() => actOnWaiting(drawn));
  const take = (event: KeyboardEvent): void => {
    if (isTyping(event.target) || (waiting.length === 0 && canAct(event))) {
      act(event);
      return;
    }
    if (event.key === "/") event.preventDefault();
    drawn.observe(document.body, { childList: true, subtree: true });
    waiting.push(event);
    actOnWaiting(drawn);
  };
  for (const event of (window as EarlyKeys).takeEarlyKeys?.() ?? []) take(event);
  document.addEventListener("keydown", take);
  // Using the mouse discards queued keys.
  document.addEventListener("pointerdown", () => {
    waiting.length = 0;
  });
}

function actOnWaiting(drawn: MutationObserver): void {
  for (let event = waiting[0]; event !== undefined; event = waiting[0]) {
    const field = document.activeElement;
    const isTyped = field instanceof HTMLInputElement && isText(event);
    if (!isTyped && !canAct(event)) return;
    waiting.shift();
    if (isTyped) insert(field, event.key);
    else act(event);
  }
  drawn.disconnect();
}

/** Returns false while the target of the key is loading. Without a skeleton on the page, nothing is loading. */
function canAct({ key }: KeyboardEvent): boolean {
  if (document.querySelector("main") === null) return false;
  const isFor = key === "/" ? SEARCH : key === "j" || key === "k" ? ENTRIES : undefined;
  if (isFor === undefined) return true;
  return document.querySelector(isFor) !== null || document.querySelector("main .skeleton") === null;
}

function act(event: KeyboardEvent): void {
  if (isPaletteKey(event)) {
    event.preventDefault();
    isPaletteOpen.value = !isPaletteOpen.value;
    return;
  }
  // The palette handles its own keys, and text editors keep their shortcuts.
  if (event.ctrlKey || event.metaKey || event.altKey || isPaletteOpen.peek()) return;
  if (event.key === "Escape") {
    leave(event.target);
    return;
  }
  if (isTyping(event.target)) return;
  if (event.timeStamp - pressedG < SEQUENCE_MS) {
    pressedG = Number.NEGATIVE_INFINITY;
    const found = PAGES.find(({ key }) => key === event.key);
    if (found) navigate(pageHref(found.name));
  } else if (event.key === "g") pressedG = event.timeStamp;
  else if (event.key === "?") isPaletteOpen.value = true;
  else if (event.key === "/") search(event);
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
}

function leave(target: EventTarget | null): void {
  if (target instanceof HTMLElement && isTyping(target)) target.blur();
  else document.querySelector<HTMLElement>("main [data-close]")?.click();
}

function search(event: KeyboardEvent): void {
  event.preventDefault();
  const field = document.querySelector<HTMLInputElement>(SEARCH);
  if (field) field.select();
  else isPaletteOpen.value = true;
}

function step(by: number): void {
  const entries = [...document.querySelectorAll<HTMLElement>(ENTRIES)].filter((one) => one.offsetParent !== null);
  const at = entries.findIndex((one) => one.getAttribute("aria-current") === "true");
  const next = entries[at < 0 ? 0 : Math.min(entries.length - 1, Math.max(0, at + by))];
  if (!next || next === entries[at]) return;
  next.scrollIntoView({ block: "nearest" });
  next.click();
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function isText({ key, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  return key.length === 1 && !ctrlKey && !metaKey && !altKey;
}

/** Fires an `input` event, as typing does. */
function insert(field: HTMLInputElement, text: string): void {
  field.setRangeText(text, field.selectionStart ?? 0, field.selectionEnd ?? 0, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
