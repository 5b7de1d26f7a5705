/**
 * Shows the policies of each route in execution order, with their lines in the configuration, and GatewayPolicy
 * documents with their status.
 */
import { useMemo } from "preact/hooks";
import { wholeText } from "../../../../src/base/format.ts";
import { isReadOnly } from "../../data/about.ts";
import { type ConfigFile, configText, type PolicyOwner, placeOfPolicy } from "../../data/config-text.ts";
import { type Dump, type DumpPolicy, type DumpRoute, dump } from "../../data/dump.ts";
import { scopesOf } from "../../data/policy-scopes.ts";
import { usePoll } from "../../data/poll.ts";
import { pageHref, param, setParams, withParams } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { PickList } from "../../parts/pick-list.tsx";
import { Status } from "../../parts/status.tsx";
import { Yaml } from "../../parts/yaml.tsx";

/** With more routes, the list can be searched and filtered. */
const FILTERED_ROUTES = 5;

export function PoliciesPage() {
  const loaded = usePoll(dump);
  const files = usePoll(configText)?.files;
  const kinds = useMemo<KindsByRoute>(() => (loaded ? kindsByRoute(loaded, files) : new Map()), [loaded, files]);
  // The selected route depends on both.
  if (!loaded || (!files && configText.error.value === undefined)) return <Skeleton lines={6} />;
  const routes = loaded.routes;
  const search = param("text").toLowerCase();
  const kind = param("kind");
  const shown = routes.filter(
    ({ name }) =>
      (search === "" || name.toLowerCase().includes(search)) &&
      (kind === "" || kinds.get(name)?.effective.has(kind) === true) &&
      (param("only") === "" || (kinds.get(name)?.own ?? 0) > 0),
  );
  const name = param("route") === "" ? firstOf(shown, kinds) : param("route");
  return (
    <>
      <PageHead title="Policies" doc="Policies of each route, in execution order." />
      {routes.length === 0 ? (
        <Empty title="No routes" />
      ) : (
        <div class="split side">
          <section class="panel">
            <header>
              <h2>{countText(shown.length, routes.length)}</h2>
            </header>
            {routes.length > FILTERED_ROUTES ? <Filters kinds={kinds} /> : null}
            <PickList
              rowHeight={28}
              empty="No route matches the filters."
              entries={shown.map((route) => ({
                key: route.name,
                href: withParams({ route: route.name, policy: "" }),
                isChosen: route.name === name,
                content: (
                  <>
                    <span class="mono ellipsis" title={visible(route.name)}>
                      {visible(route.name)}
                    </span>
                    <span class="hint">{kinds.get(route.name)?.own}</span>
                  </>
                ),
              }))}
            />
          </section>
          <Effective dump={loaded} name={name} />
        </div>
      )}
      <Resources policies={loaded.policies.filter(({ metadata }) => metadata !== undefined)} />
    </>
  );
}

interface RouteKinds {
  /** The kinds that apply to the route, including those of its listeners. */
  readonly effective: ReadonlySet<string>;
  /** The number of policies of the route and its backends. */
  readonly own: number;
}

type KindsByRoute = ReadonlyMap<string, RouteKinds>;

/** Routes contain the policies that they inherit from a gateway, for example `cors`. The file shows which are their own. */
function kindsByRoute(loaded: Dump, files: readonly ConfigFile[] = []): KindsByRoute {
  const written = new Set(files.flatMap(({ places }) => Object.keys(places)));
  const isInherited = ({ name, gateways }: DumpRoute, kind: string): boolean =>
    !written.has(`route ${name} policy ${kind}`) &&
    gateways.some((gateway) => written.has(`listener ${gateway} policy ${kind}`));
  const listeners = new Map(loaded.listeners.map(({ name, policies }) => [name, Object.keys(policies)]));
  const backends = new Map(loaded.backends.map(({ name, policies }) => [name, Object.keys(policies)]));
  return new Map(
    loaded.routes.map((route) => {
      const kinds = [
        ...Object.keys(route.policies),
        ...route.backends.flatMap((backend) => backends.get(backend.name) ?? []),
      ];
      const own = kinds.filter((kind) => !isInherited(route, kind));
      const shared = route.gateways.flatMap((gateway) => listeners.get(gateway) ?? []);
      return [route.name, { effective: new Set([...shared, ...kinds]), own: own.length }];
    }),
  );
}

/** Prefers a route with policies of its own. */
function firstOf(routes: readonly DumpRoute[], kinds: KindsByRoute): string {
  return (routes.find(({ name }) => (kinds.get(name)?.own ?? 0) > 0) ?? routes[0])?.name ?? "";
}

function countText(shown: number, all: number): string {
  const noun = all === 1 ? "route" : "routes";
  return shown === all ? `${wholeText(all)} ${noun}` : `${wholeText(shown)} of ${wholeText(all)} ${noun}`;
}

function Filters({ kinds }: { kinds: KindsByRoute }) {
  const counts = useMemo(() => {
    const found = new Map<string, number>();
    for (const { effective } of kinds.values())
      for (const kind of effective) found.set(kind, (found.get(kind) ?? 0) + 1);
    return [...found].sort(([a], [b]) => a.localeCompare(b));
  }, [kinds]);
  const isOnly = param("only") !== "";
  return (
    <search class="route-filters">
      <input
        class="input"
        data-search
        aria-label="Search routes"
        placeholder="Search by name"
        value={param("text")}
        onInput={(event) => setParams({ text: event.currentTarget.value, route: "" }, { replace: true })}
      />
      <select
        class="input"
        aria-label="Policy"
        value={param("kind")}
        onChange={(event) => setParams({ kind: event.currentTarget.value, route: "" }, { replace: true })}
      >
        <option value="">any policy</option>
        {counts.map(([kind, count]) => (
          <option key={kind} value={kind}>
            {kind} ({wholeText(count)})
          </option>
        ))}
      </select>
      <button
        type="button"
        class={isOnly ? "chip on" : "chip"}
        aria-pressed={isOnly}
        onClick={() => setParams({ only: isOnly ? "" : "own", route: "" }, { replace: true })}
      >
        has policies
      </button>
    </search>
  );
}

function Effective({ dump: loaded, name }: { dump: Dump; name: string }) {
  const rows = scopesOf(loaded, "route", name).flatMap(({ title, policies, owner }) =>
    Object.entries(policies).map(([kind, config]) => ({ title, kind, config, owner })),
  );
  return (
    <Panel
      title={<span class="mono">{visible(name)}</span>}
      end={<a href={pageHref("requests", { route: name })}>View requests</a>}
      flush
    >
      {rows.length === 0 ? (
        <Empty title="No policies" yaml={EXAMPLE}>
          <p>Every request passes unchanged. A policy applies to a gateway, a route or a backend:</p>
        </Empty>
      ) : (
        <ol class="policies">
          {rows.map((row) => (
            <Policy key={`${row.title} ${row.kind}`} {...row} />
          ))}
        </ol>
      )}
    </Panel>
  );
}

function Policy({ title, kind, config, owner }: { title: string; kind: string; config: unknown; owner: PolicyOwner }) {
  const isSelected = param("policy") === kind;
  return (
    <li class={isSelected ? "selected" : ""} aria-current={isSelected ? "true" : undefined}>
      <header>
        <a class="mono" href={withParams({ policy: isSelected ? "" : kind })}>
          {kind}
        </a>
        <span class="muted">applies to {visible(title)}</span>
        {isReadOnly.value ? null : <Line kind={kind} owner={owner} />}
      </header>
      <Yaml value={config} />
    </li>
  );
}

function Line({ kind, owner }: { kind: string; owner: PolicyOwner }) {
  const place = placeOfPolicy(usePoll(configText)?.files, kind, owner);
  if (place === undefined) return null;
  return (
    <a class="mono" href={pageHref("config", { file: place.file, line: String(place.line) })}>
      {fileName(place.file)}:{place.line}
    </a>
  );
}

function Resources({ policies }: { policies: readonly DumpPolicy[] }) {
  if (policies.length === 0) return null;
  return (
    <Panel title="GatewayPolicy documents" flush>
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Target</th>
            <th scope="col">Accepted</th>
            <th scope="col">Attached</th>
            <th scope="col">Message</th>
          </tr>
        </thead>
        <tbody>
          {policies.flatMap((policy) =>
            (policy.status?.ancestors ?? []).map((ancestor) => (
              <tr
                key={`${policy.metadata?.namespace} ${policy.metadata?.name} ${JSON.stringify(ancestor.ancestorRef)}`}
              >
                <td class="mono">
                  {visible(policy.metadata?.namespace ?? "")}/{visible(policy.metadata?.name ?? "")}
                </td>
                <td class="mono">
                  {visible(ancestor.ancestorRef?.kind ?? "")} {visible(ancestor.ancestorRef?.name ?? "")}
                </td>
                {["Accepted", "Attached"].map((type) => (
                  <td key={type}>
                    <Condition status={ancestor.conditions?.find((one) => one.type === type)?.status} />
                  </td>
                ))}
                <td class="wrap">
                  {visible(
                    ancestor.conditions
                      ?.filter(({ status, message }) => status !== "True" && message)
                      .map(({ message }) => message)
                      .join(" ") ?? "",
                  )}
                </td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </Panel>
  );
}

function Condition({ status }: { status: string | undefined }) {
  if (status === undefined) return <span class="muted">–</span>;
  return <Status level={status === "True" ? "ok" : "bad"}>{status}</Status>;
}

const EXAMPLE = `routes:
  - name: tools
    policies:
      rateLimit:
        local: [{ requests: 10, unit: Minutes }]`;
