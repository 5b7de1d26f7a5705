/**
 * Implements the command palette, which searches pages, listeners, routes, backends, policies, tools, and request IDs.
 */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { dump } from "../data/dump.ts";
import { requestList } from "../data/requests.ts";
import { knownTools } from "../data/tools.ts";
import { visible } from "../parts/format.ts";
import { PAGES } from "./pages.ts";
import { isPaletteOpen } from "./palette-state.ts";
import { navigate, pageHref } from "./router.ts";

interface Item {
  readonly kind: string;
  readonly text: string;
  readonly detail: string;
  readonly href: string;
}

const MAX_SHOWN = 50;

export function Palette() {
  const [query, setQuery] = useState("");
  const [selected, setSelected] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const items = useMemo(allItems, []);
  const shown = useMemo(() => filterItems(items, query), [items, query]);

  useLayoutEffect(() => {
    dialog.current?.showModal();
    input.current?.focus();
  }, []);
  useEffect(() => {
    document.getElementById(`palette-${selected}`)?.scrollIntoView({ block: "nearest" });
  }, [selected]);

  const close = (): void => {
    isPaletteOpen.value = false;
  };
  const go = (item: Item | undefined): void => {
    if (!item) return;
    close();
    navigate(item.href);
  };

  return (
    <dialog class="palette" aria-label="Go to" ref={dialog} closedby="any" onClose={close}>
      <input
        ref={input}
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${selected}`}
        aria-label="Go to a page, route, tool, policy or request"
        placeholder="Page, route, tool, policy or request id"
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setSelected(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") go(shown[selected]);
          else if (event.key === "ArrowDown") setSelected(Math.min(selected + 1, shown.length - 1));
          else if (event.key === "ArrowUp") setSelected(Math.max(selected - 1, 0));
          else return;
          event.preventDefault();
        }}
      />
      <div id="palette-list" role="listbox" aria-label="Results" tabIndex={-1}>
        {shown.map((item, i) => (
          <button
            key={`${item.kind} ${item.href} ${item.text}`}
            id={`palette-${i}`}
            type="button"
            role="option"
            tabIndex={-1}
            aria-selected={i === selected}
            onMouseMove={() => setSelected(i)}
            onClick={() => go(item)}
          >
            <span class="kind">{item.kind}</span>
            <span class="ellipsis">{item.text}</span>
            <span class="hint ellipsis">{item.detail}</span>
          </button>
        ))}
      </div>
      {shown.length === 0 ? <p class="muted none">No results.</p> : null}
    </dialog>
  );
}

function allItems(): Item[] {
  const loaded = dump.value.peek();
  const pages = PAGES.map(({ name, title, doc }) => ({
    kind: "page",
    text: title,
    detail: doc,
    href: pageHref(name),
  }));
  const node = (kind: string, name: string, detail: string): Item => ({
    kind,
    text: visible(name),
    detail,
    href: pageHref("overview", { node: `${kind}:${name}` }),
  });
  return [
    ...pages,
    ...(loaded?.listeners.map(({ name, port }) => node("listener", name, `:${port}`)) ?? []),
    ...(loaded?.routes.map(({ name }) => node("route", name, "")) ?? []),
    ...(loaded?.backends.map(({ name, type }) => node("backend", name, type)) ?? []),
    ...(loaded?.routes.flatMap(({ name, policies }) =>
      Object.keys(policies).map((kind) => ({
        kind: "policy",
        text: kind,
        detail: visible(name),
        href: pageHref("policies", { route: name }),
      })),
    ) ?? []),
    ...knownTools.peek().map(({ name, endpoint }) => ({
      kind: "tool",
      text: visible(name),
      detail: endpoint,
      href: pageHref("mcp", { at: endpoint, tool: name }),
    })),
    ...(requestList.value.peek() ?? []).map(({ id, what, status }) => ({
      kind: "request",
      text: id,
      detail: `${visible(what)} ${status ?? ""}`,
      href: pageHref("requests", { id }),
    })),
  ];
}

function filterItems(items: readonly Item[], query: string): Item[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return items
    .filter((item) => {
      const text = `${item.kind} ${item.text} ${item.detail}`.toLowerCase();
      return words.every((word) => text.includes(word));
    })
    .slice(0, MAX_SHOWN);
}
