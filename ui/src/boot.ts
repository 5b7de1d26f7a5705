/**
 * What must happen before the application has arrived: the chosen theme is set before the first paint, and keys are kept
 * that somebody presses meanwhile (`frame/keys.ts` acts on them). A script of its own, because the page allows no inline
 * script.
 */
import { type EarlyKeys, isOurs } from "./frame/early-keys.ts";

const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;

const pressed: KeyboardEvent[] = [];
const keep = (event: KeyboardEvent): void => {
  if (isOurs(event)) event.preventDefault();
  pressed.push(event);
};
document.addEventListener("keydown", keep);

(window as EarlyKeys).takeEarlyKeys = () => {
  document.removeEventListener("keydown", keep);
  return pressed;
};
