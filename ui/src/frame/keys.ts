/**
 * Keys that work everywhere: `g` and a letter opens a page, Ctrl-K and `?` the palette, `/` the search of the page, `j`
 * and `k` the next and the previous entry of its list, Esc closes what is open beside it. Only Esc does something
 * while somebody types: it leaves the field.
 */
import { PAGES } from "./pages.ts";
import { isPaletteOpen } from "./palette-state.ts";
import { navigate, pageHref } from "./router.ts";

const SEQUENCE_MS = 1_000;
const ENTRIES = "main .pick :is(a, button), main table.requests tbody a, main .flow .node";

export function startKeys(): void {
  let pressedG = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      isPaletteOpen.value = !isPaletteOpen.value;
      return;
    }
    // The palette closes itself, and an editor of text keeps its own meaning of keys.
    if (event.ctrlKey || event.metaKey || event.altKey || isPaletteOpen.peek()) return;
    if (event.key === "Escape") {
      leave(event.target);
      return;
    }
    if (isTyping(event.target)) return;
    if (event.timeStamp - pressedG < SEQUENCE_MS) {
      pressedG = 0;
      const found = PAGES.find(({ key }) => key === event.key);
      if (found) navigate(pageHref(found.name));
    } else if (event.key === "g") pressedG = event.timeStamp;
    else if (event.key === "?") isPaletteOpen.value = true;
    else if (event.key === "/") search(event);
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
}

function leave(target: EventTarget | null): void {
  if (target instanceof HTMLElement && isTyping(target)) target.blur();
  else document.querySelector<HTMLElement>("main [data-close]")?.click();
}

function search(event: KeyboardEvent): void {
  event.preventDefault();
  const field = document.querySelector<HTMLInputElement>("main [data-search]");
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
