/**
 * Runs before the application is loaded: sets the chosen theme before the first paint, and records key presses until
 * the application can handle them (`frame/keys.ts`). A separate script, because the page does not allow inline scripts.
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
