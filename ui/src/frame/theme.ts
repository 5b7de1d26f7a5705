/**
 * Stores the theme (light, dark, or system) in the browser.
 */
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "theme";
const ORDER: readonly Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(ORDER.find((one) => one === localStorage.getItem(KEY)) ?? "system");

export function nextTheme(): void {
  const next = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length] ?? "system";
  theme.value = next;
  if (next === "system") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, next);
    document.documentElement.dataset.theme = next;
  }
}
