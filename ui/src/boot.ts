/**
 * Runs before the application is loaded. It sets the theme before the first paint, records key presses, which
 * `frame/keys.ts` handles later, and loads the page again if the application cannot be loaded, for example because the
 * gateway restarts. The page forbids inline scripts, so this is a separate file.
 */
import { type EarlyKeys, isOurs } from "./frame/early-keys.ts";

const RELOAD_MS = 1_000;
const MAX_RELOADS = 10;

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

async function reload(): Promise<void> {
  const isAvailable = await fetch(location.href, { cache: "no-store" }).then(
    ({ ok }) => ok,
    () => false,
  );
  if (isAvailable) location.reload();
  else setTimeout(reload, RELOAD_MS);
}

addEventListener(
  "error",
  ({ target }) => {
    if (!(target instanceof HTMLScriptElement)) return;
    const reloads = Number(sessionStorage.getItem("reloads") ?? 0);
    if (reloads >= MAX_RELOADS) return;
    sessionStorage.setItem("reloads", String(reloads + 1));
    setTimeout(reload, RELOAD_MS);
  },
  true,
);
addEventListener("load", () => {
  if (document.getElementById("app")?.hasChildNodes()) sessionStorage.removeItem("reloads");
});
