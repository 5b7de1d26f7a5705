/**
 * Keys that work everywhere: `g` and a letter opens a page, Ctrl-K the palette, `?` is the palette too. They do
 * nothing while somebody types.
 */
import { PAGES } from "./pages.ts";
import { isPaletteOpen } from "./palette-state.ts";
import { navigate, pageHref } from "./router.ts";

const SEQUENCE_MS = 1_000;

export function startKeys(): void {
  let pressedG = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      isPaletteOpen.value = !isPaletteOpen.value;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "?") isPaletteOpen.value = true;
    else if (event.key === "g") pressedG = event.timeStamp;
    else if (event.timeStamp - pressedG < SEQUENCE_MS) {
      pressedG = 0;
      const found = PAGES.find(({ key }) => key === event.key);
      if (found) navigate(pageHref(found.name));
    }
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}
