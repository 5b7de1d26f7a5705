/**
 * Computes the positions of the boxes in the traffic diagram and the curves between them.
 */
import type { Dump } from "../../data/dump.ts";
import { leavesOf } from "../../data/dump.ts";

export type NodeKind = "listener" | "route" | "backend";

export interface Box {
  readonly id: string;
  readonly kind: NodeKind;
  readonly name: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Link {
  readonly id: string;
  readonly kind: "intoRoute" | "intoBackend";
  readonly from: string;
  readonly to: string;
}

export interface Layout {
  readonly boxes: readonly Box[];
  readonly links: readonly Link[];
  readonly height: number;
}

const GAP = 10;
const NODE_HEIGHT = 54;
const LEAF_HEIGHT = 18;
export const MAX_LEAVES = 4;
/** Below this width, the diagram is shown as a list. */
export const MIN_WIDTH = 640;

/** With more routes, only some are drawn at first. */
export const DRAWN_ROUTES = 12;

/**
 * Returns the configuration with only the matching or first routes by rank, their listeners and their backends.
 */
export function drawnPart(dump: Dump, options: DrawnOptions): Dump {
  const { search, limit, selected, rank } = options;
  if (dump.routes.length <= DRAWN_ROUTES) return dump;
  const text = search.toLowerCase();
  const found = text === "" ? dump.routes : dump.routes.filter(({ name }) => name.toLowerCase().includes(text));
  const sorted = [...dump.routes].sort((a, b) => rank(a.name) - rank(b.name));
  const ranked = sorted.filter((route) => found.includes(route)).slice(0, limit);
  const names = new Set(ranked.map(({ name }) => name));
  if (selected.startsWith("route:")) names.add(selected.slice("route:".length));
  const routes = sorted.filter(({ name }) => names.has(name));
  const backends = new Set(routes.flatMap((route) => route.backends.map(({ name }) => name)));
  const listeners = new Set(routes.flatMap((route) => route.gateways));
  return {
    ...dump,
    routes,
    backends: dump.backends.filter(({ name }) => backends.has(name) || selected === `backend:${name}`),
    listeners: dump.listeners
      .filter(({ name }) => dump.listeners.length <= DRAWN_ROUTES || listeners.has(name))
      .map((listener) => ({ ...listener, routes: listener.routes.filter((name) => names.has(name)) })),
  };
}

export interface DrawnOptions {
  readonly search: string;
  readonly limit: number;
  readonly selected: string;
  /** Routes with lower ranks come first. */
  rank(route: string): number;
}

export function layoutOf(dump: Dump, width: number): Layout {
  const channel = Math.max(56, width * 0.1);
  const column = (width - 2 * channel) / 3;
  const backends = uniqueBy(dump.backends, ({ name }) => name);
  const columns: { kind: NodeKind; items: { name: string; height: number }[] }[] = [
    { kind: "listener", items: dump.listeners.map(({ name }) => ({ name, height: NODE_HEIGHT })) },
    { kind: "route", items: dump.routes.map(({ name }) => ({ name, height: NODE_HEIGHT })) },
    {
      kind: "backend",
      items: backends.map((backend) => ({
        name: backend.name,
        height: NODE_HEIGHT + LEAF_HEIGHT * Math.min(leavesOf(backend).length, MAX_LEAVES + 1),
      })),
    },
  ];
  const heights = columns.map(({ items }) => items.reduce((sum, { height }) => sum + height + GAP, -GAP));
  const height = Math.max(...heights, NODE_HEIGHT);
  const boxes = columns.flatMap(({ kind, items }, i) => {
    // All columns start at the top, so that the first screen is never empty.
    let y = 0;
    return items.map((item) => {
      const box = {
        id: idOf(kind, item.name),
        kind,
        name: item.name,
        x: i * (column + channel),
        y,
        width: column,
        height: item.height,
      };
      y += item.height + GAP;
      return box;
    });
  });
  return { boxes, links: linksOf(dump), height };
}

export function idOf(kind: NodeKind, name: string): string {
  return `${kind}:${name}`;
}

function linksOf(dump: Dump): Link[] {
  const intoRoutes = dump.listeners.flatMap((listener) =>
    listener.routes.map((route) => ({
      id: `${listener.name}\n${route}`,
      kind: "intoRoute" as const,
      from: idOf("listener", listener.name),
      to: idOf("route", route),
    })),
  );
  const intoBackends = dump.routes.flatMap((route) =>
    uniqueBy(route.backends, ({ name }) => name).map(({ name }) => ({
      id: `${route.name}\n\n${name}`,
      kind: "intoBackend" as const,
      from: idOf("route", route.name),
      to: idOf("backend", name),
    })),
  );
  return [...intoRoutes, ...intoBackends];
}

export function curveOf(from: Box, to: Box): string {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x, to.y + to.height / 2];
  const bend = (x2 - x1) / 2;
  return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

/** The scale is logarithmic. */
export function strokeWidth(perSecond: number): number {
  return perSecond === 0 ? 1 : Math.min(12, 1.5 + 2 * Math.log10(1 + perSecond));
}

function uniqueBy<Item>(items: readonly Item[], key: (item: Item) => string): Item[] {
  return [...new Map(items.map((item) => [key(item), item])).values()];
}
