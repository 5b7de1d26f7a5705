/**
 * Runs before the application is loaded. It sets the theme before the first paint and records key presses, which
 * `frame/keys.ts` handles later. The page forbids inline scripts, so this is a separate file.
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
