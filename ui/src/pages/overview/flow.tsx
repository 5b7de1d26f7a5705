/**
 * Draws the traffic diagram with listeners, routes, and backends. The width of a curve is the request rate, and its
 * color is the share of errors. On a narrow screen, the nodes are a list.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Dump, type DumpBackend, type Leaf, leavesOf, matchText } from "../../data/dump.ts";
import { countOf, keyOf, p95Of, rateOf, sparkOf } from "../../data/history.ts";
import { serverState } from "../../data/mcp-targets.ts";
import { param, setParams, withParams } from "../../frame/router.ts";
import { durationText, percentText, rateText, visible, wholeText } from "../../parts/format.ts";
import { Sparkline } from "../../parts/sparkline.tsx";
import { type Level, levelOfRate, Status } from "../../parts/status.tsx";
import {
  type Box,
  curveOf,
  DRAWN_ROUTES,
  drawnPart,
  idOf,
  type Link,
  layoutOf,
  MAX_LEAVES,
  MIN_WIDTH,
  type NodeKind,
  strokeWidth,
} from "./layout.ts";

const MORE_ROUTES = 38;

/** With many routes, shows the busiest routes and a search. */
export function Flow({ dump, selected }: { dump: Dump; selected: string }) {
  const search = param("find");
  const [limit, setLimit] = useState(DRAWN_ROUTES);
  // Routes are ranked only when the configuration changes, so that nodes do not move when rates change.
  const part = useMemo(
    () => drawnPart(dump, { search, limit, selected, busy: (route) => countOf(keyOf.route(route)) }),
    [dump, search, limit, selected],
  );
  if (dump.routes.length <= DRAWN_ROUTES) return <Picture dump={dump} selected={selected} />;
  const hidden = dump.routes.length - part.routes.length;
  return (
    <section class="stack" aria-label="Routes">
      <div class="row">
        <input
          class="input find-route"
          data-search
          aria-label="Search routes"
          placeholder={`Search ${wholeText(dump.routes.length)} routes`}
          value={search}
          onInput={(event) => setParams({ find: event.currentTarget.value }, { replace: true })}
        />
        <span class="muted">
          {search === ""
            ? `The ${part.routes.length} busiest of ${wholeText(dump.routes.length)} routes`
            : `${part.routes.length} routes with this text`}
        </span>
        {hidden > 0 && search === "" ? (
          <button type="button" class="button quiet" onClick={() => setLimit(limit + MORE_ROUTES)}>
            Show {Math.min(MORE_ROUTES, hidden)} more
          </button>
        ) : null}
      </div>
      {part.routes.length === 0 ? <p class="muted">No route has this text in its name.</p> : null}
      <Picture dump={part} selected={selected} />
    </section>
  );
}

function Picture({ dump, selected }: { dump: Dump; selected: string }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!frame.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const isWide = width >= MIN_WIDTH;
  const layout = useMemo(() => layoutOf(dump, Math.max(width, MIN_WIDTH)), [dump, width]);
  const byId = new Map(layout.boxes.map((box) => [box.id, box]));
  return (
    <div class={isWide ? "flow" : "flow narrow"} ref={frame} style={isWide ? { height: `${layout.height}px` } : {}}>
      {isWide ? (
        <svg width={width} height={layout.height} aria-hidden="true">
          {layout.links.map((link) => (
            <Curve key={link.id} link={link} from={byId.get(link.from)} to={byId.get(link.to)} />
          ))}
        </svg>
      ) : null}
      {width === 0
        ? null
        : layout.boxes.map((box) => (
            <Node key={box.id} box={box} dump={dump} isWide={isWide} isSelected={box.id === selected} />
          ))}
    </div>
  );
}

function Curve({ link, from, to }: { link: Link; from: Box | undefined; to: Box | undefined }) {
  if (!from || !to) return null;
  const rate = rateOf(keyOf[link.kind](from.name, to.name));
  const level = levelOfRate(rate);
  return (
    <path
      class={rate.requests === 0 ? "link idle" : `link ${level}`}
      d={curveOf(from, to)}
      stroke-width={strokeWidth(rate.requests)}
    />
  );
}

function Node({ box, dump, isWide, isSelected }: { box: Box; dump: Dump; isWide: boolean; isSelected: boolean }) {
  const { kind, name } = box;
  const key = keyOf[kind](name);
  const rate = rateOf(key);
  const p95 = kind === "backend" ? undefined : p95Of(key);
  const level = levelOfRate(rate);
  const place = isWide
    ? { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` }
    : {};
  return (
    <a
      class={`node ${kind}`}
      href={withParams({ node: isSelected ? "" : idOf(kind, name) })}
      aria-current={isSelected ? "true" : undefined}
      style={place}
    >
      <span class="title">
        <span class="mono ellipsis">{visible(name)}</span>
        <span class="muted small ellipsis hint">{subtitleOf(kind, name, dump)}</span>
      </span>
      <span class="numbers">
        <span>{rateText(rate.requests)}</span>
        {p95 === undefined ? null : <span class="muted">p95 {durationText(p95 * 1000)}</span>}
        {rate.errorShare > 0 ? <Status level={level}>{percentText(rate.errorShare)} errors</Status> : null}
        {rate.errorShare === 0 && rate.rejectedShare > 0 ? (
          <Status level="warn">{percentText(rate.rejectedShare)} rejected</Status>
        ) : null}
        <Sparkline values={sparkOf(key)} />
      </span>
      {kind === "backend" ? <Leaves backend={dump.backends.find((one) => one.name === name)} /> : null}
    </a>
  );
}

function Leaves({ backend }: { backend: DumpBackend | undefined }) {
  const leaves = backend ? leavesOf(backend) : [];
  if (leaves.length === 0) return null;
  return (
    <span class="leaves">
      {leaves.slice(0, MAX_LEAVES).map((leaf) => (
        <span class="leaf" key={leaf.name}>
          <Status level={levelOf(backend?.name ?? "", leaf)}>
            <span class="mono">{visible(leaf.name)}</span>
          </Status>
          <span class="muted ellipsis">{visible(leaf.detail)}</span>
        </span>
      ))}
      {leaves.length > MAX_LEAVES ? <span class="muted small">and {leaves.length - MAX_LEAVES} more</span> : null}
    </span>
  );
}

/** The state of a server is unknown until a session connects to it. */
function levelOf(backend: string, { kind, name, state }: Leaf): Level {
  if (kind !== "target") return state;
  const server = serverState(backend, name);
  if (server.state === "failing") return "bad";
  return state === "idle" && server.state === "up" ? "ok" : state;
}

function subtitleOf(kind: NodeKind, name: string, dump: Dump): string {
  if (kind === "listener") {
    const listener = dump.listeners.find((one) => one.name === name);
    return listener ? `${listener.protocol} :${listener.port}` : "";
  }
  if (kind === "route") {
    const matches = dump.routes.find((one) => one.name === name)?.matches ?? [];
    const first = matches[0] ? visible(matchText(matches[0])) : "";
    return matches.length > 1 ? `${first} +${matches.length - 1}` : first;
  }
  const backend = dump.backends.find((one) => one.name === name);
  return typeof backend?.host === "string" ? visible(backend.host) : (backend?.type ?? "");
}
