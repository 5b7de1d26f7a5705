/**
 * Draws the traffic diagram with listeners, routes, and backends. The width of a curve is the request rate, and its
 * color is the share of errors. On a narrow screen, the nodes are a list.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { durationText, percentText, rateText, wholeText } from "../../../../src/base/format.ts";
import { type Dump, type DumpBackend, type Leaf, leavesOf, matchText } from "../../data/dump.ts";
import { serverState } from "../../data/mcp-targets.ts";
import { failingRoutes, keyOf, nodes, trafficOfNode } from "../../data/nodes.ts";
import { param, setParams, withParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
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

/** With many routes, shows failing routes, then the busiest, and a search. */
export function Flow({ dump, selected }: { dump: Dump; selected: string }) {
  const search = param("find");
  const [limit, setLimit] = useState(DRAWN_ROUTES);
  const { generation } = dump.reload;
  const isKnown = nodes.value.value !== undefined;
  const [failing, span] = [failingRoutes.value, param("range")];
  // Routes are not ranked again when rates change, so that nodes do not move.
  const ranks = useMemo(() => ranksOf(dump), [generation, isKnown, failing, span]);
  const part = useMemo(
    () => drawnPart(dump, { search, limit, selected, rank: (route) => ranks.get(route) ?? 0 }),
    [dump, search, limit, selected, ranks],
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
            ? `${part.routes.length} of ${wholeText(dump.routes.length)} routes: failing first, then busiest`
            : `${part.routes.length} ${part.routes.length === 1 ? "route" : "routes"} with this text`}
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

/** Returns the position of each route, by failed requests, then by all requests. */
function ranksOf(dump: Dump): ReadonlyMap<string, number> {
  const routes = dump.routes.map(({ name }) => {
    const { requests, errorShare } = trafficOfNode(keyOf.route(name));
    return { name, requests, failed: Math.round(requests * errorShare) };
  });
  routes.sort((a, b) => b.failed - a.failed || b.requests - a.requests);
  return new Map(routes.map(({ name }, i) => [name, i]));
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
  const traffic = trafficOfNode(keyOf[link.kind](from.name, to.name));
  return (
    <path
      class={traffic.requests === 0 ? "link idle" : `link ${levelOfRate(traffic)}`}
      d={curveOf(from, to)}
      stroke-width={strokeWidth(traffic.perSecond)}
    />
  );
}

function Node({ box, dump, isWide, isSelected }: { box: Box; dump: Dump; isWide: boolean; isSelected: boolean }) {
  const { kind, name } = box;
  const traffic = trafficOfNode(keyOf[kind](name));
  const level = levelOfRate(traffic);
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
        <span>{rateText(traffic.perSecond)}</span>
        {traffic.p95Ms === null ? null : <span class="muted p95">p95 {durationText(traffic.p95Ms)}</span>}
        {traffic.errorShare > 0 ? <Status level={level}>{percentText(traffic.errorShare)} errors</Status> : null}
        {traffic.errorShare === 0 && traffic.rejectedShare > 0 ? (
          <Status level="warn">{percentText(traffic.rejectedShare)} rejected</Status>
        ) : null}
        <Sparkline values={traffic.trend} />
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
