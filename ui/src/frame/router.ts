/**
 * Implements the router. Views, filters, and selections are part of the URL, so that links can be shared and the back
 * button works.
 */
import { computed, signal } from "@preact/signals";

export const BASE = "/ui";

const href = signal(location.pathname + location.search);

export const url = computed(() => new URL(href.value, location.origin));

export const page = computed(() => {
  const first = url.value.pathname.slice(BASE.length).split("/")[1] ?? "";
  return first === "" ? "overview" : first;
});

export function param(name: string): string {
  return url.value.searchParams.get(name) ?? "";
}

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  const next = new URL(to, location.href);
  const path = next.pathname + next.search;
  if (path === href.value) return;
  if (options.replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  href.value = path;
}

/** An empty value removes the parameter. */
export function withParams(changes: Readonly<Record<string, string>>): string {
  const next = new URL(url.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") next.searchParams.delete(name);
    else next.searchParams.set(name, value);
  }
  return next.pathname + next.search;
}

export function setParams(changes: Readonly<Record<string, string>>, options: { replace?: boolean } = {}): void {
  navigate(withParams(changes), options);
}

export function pageHref(name: string, params: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams(params).toString();
  return `${BASE}/${name}${query === "" ? "" : `?${query}`}`;
}

/** Handles links within the UI without reloading the page. */
export function startRouter(): void {
  window.addEventListener("popstate", () => {
    href.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (link?.target !== "" || link.origin !== location.origin || link.hasAttribute("download")) return;
    if (!link.pathname.startsWith(`${BASE}/`) || link.pathname.startsWith(`${BASE}/api/`)) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
