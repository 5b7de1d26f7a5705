/**
 * Shows the policies of each route in execution order, and GatewayPolicy documents with their status.
 */
import { type Dump, type DumpPolicy, dump } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import { pageHref, param, setParams, withParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { PickList } from "../../parts/pick-list.tsx";
import { Status } from "../../parts/status.tsx";
import { scopesOf } from "../overview/node-panel.tsx";

/** With more routes, a search field is shown. */
const SEARCHED_ROUTES = 12;

export function PoliciesPage() {
  const loaded = usePoll(dump);
  if (!loaded) return <Skeleton lines={6} />;
  const routes = loaded.routes;
  const name = param("route") === "" ? (routes[0]?.name ?? "") : param("route");
  const search = param("text").toLowerCase();
  const shown = search === "" ? routes : routes.filter((route) => route.name.toLowerCase().includes(search));
  return (
    <>
      <PageHead title="Policies" doc="Policies of each route, in execution order." />
      {routes.length === 0 ? (
        <Empty title="No routes" />
      ) : (
        <div class="split side">
          <Panel title="Routes" flush>
            {routes.length > SEARCHED_ROUTES ? (
              <input
                class="input find"
                data-search
                aria-label="Search routes"
                placeholder={`Search ${routes.length} routes`}
                value={param("text")}
                onInput={(event) => setParams({ text: event.currentTarget.value }, { replace: true })}
              />
            ) : null}
            <PickList
              rowHeight={28}
              empty="No route has this text in its name."
              entries={shown.map((route) => ({
                key: route.name,
                href: withParams({ route: route.name, policy: "" }),
                isChosen: route.name === name,
                content: (
                  <>
                    <span class="mono ellipsis" title={visible(route.name)}>
                      {visible(route.name)}
                    </span>
                    <span class="hint">{Object.keys(route.policies).length}</span>
                  </>
                ),
              }))}
            />
          </Panel>
          <Effective dump={loaded} name={name} />
        </div>
      )}
      <Resources policies={loaded.policies.filter(({ metadata }) => metadata !== undefined)} />
    </>
  );
}

function Effective({ dump: loaded, name }: { dump: Dump; name: string }) {
  const scopes = scopesOf(loaded, "route", name);
  const rows = scopes.flatMap(({ title, policies }) =>
    Object.entries(policies).map(([kind, config]) => ({ title, kind, config })),
  );
  const open = param("policy");
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
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">
                order
              </th>
              <th scope="col">policy</th>
              <th scope="col">applies to</th>
              <th scope="col">configuration</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ title, kind, config }, i) => (
              <tr key={`${title} ${kind}`} class={open === kind ? "selected" : ""}>
                <td class="number muted">{i + 1}</td>
                <td>
                  <button
                    type="button"
                    class="button quiet mono"
                    onClick={() => setParams({ policy: open === kind ? "" : kind }, { replace: true })}
                  >
                    {kind}
                  </button>
                </td>
                <td class="muted">{visible(title)}</td>
                <td>
                  <Json value={config} open={open === kind ? 6 : 3} key={open} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Resources({ policies }: { policies: readonly DumpPolicy[] }) {
  if (policies.length === 0) return null;
  return (
    <Panel title="GatewayPolicy documents" flush>
      <table>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">target</th>
            <th scope="col">Accepted</th>
            <th scope="col">Attached</th>
            <th scope="col">message</th>
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
