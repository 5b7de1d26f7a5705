/** ListenerSets: which listeners their Gateway serves, their routes and policies, and their status. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { certificates } from "../../test/support/tls/certificates.ts";
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { dataPlaneManifests } from "./data-plane-deployment.ts";
import { createHeldObjects } from "./held-objects.ts";
import { desiredStatuses, heldStatuses } from "./status.ts";

const API = "gateway.networking.k8s.io/v1";
const GROUP = "gateway.networking.k8s.io";

function object(kind: string, key: string, spec: object, more: object = {}): KubernetesObject {
  const [name = "", namespace] = key.split("/").reverse();
  const apiVersion = kind === "GatewayPolicy" ? "policy.gateway.internal/v1alpha1" : API;
  return {
    apiVersion,
    kind,
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), uid: `${kind} ${key}`, ...more },
    spec,
  };
}

const gatewayClass = object("GatewayClass", "gateway", { controllerName: "policy.gateway.internal/gateway" });
const listener = (hostname: string, more: object = {}) => ({
  name: hostname.split(".")[0],
  port: 80,
  protocol: "HTTP",
  hostname,
  allowedRoutes: { namespaces: { from: "All" } },
  ...more,
});
const gateway = (from: unknown = "All", more: object = {}) =>
  object("Gateway", "infra/edge", {
    gatewayClassName: "gateway",
    listeners: [listener("own.test")],
    ...(from === undefined ? {} : { allowedListeners: { namespaces: typeof from === "string" ? { from } : from } }),
    ...more,
  });
const set = (key: string, listeners: readonly object[], more: object = {}, metadata: object = {}) =>
  object("ListenerSet", key, { parentRef: { name: "edge", namespace: "infra" }, listeners, ...more }, metadata);
const route = (key: string, parentRefs: readonly object[]) =>
  object("HTTPRoute", key, {
    parentRefs,
    rules: [{ filters: [{ type: "RequestRedirect", requestRedirect: { hostname: "else.test" } }] }],
  });
const setRef = (name: string, more: object = {}) => ({ group: GROUP, kind: "ListenerSet", name, ...more });
const policy = (key: string, target: object, traffic: object, metadata: object = {}) =>
  object("GatewayPolicy", key, { targetRefs: [{ group: GROUP, ...target }], traffic }, metadata);

const SERVED = {
  programmed: { isTrue: true, reason: "Programmed", message: "Served" },
  addresses: [],
  refused: new Map(),
};
const PENDING = { ...SERVED, programmed: { isTrue: false, reason: "Pending", message: "No data plane serves it yet" } };

const shownConditions = (conditions: unknown): string[] =>
  listOf(conditions)
    .map(fieldsOf)
    .map(({ type, status, reason }) => `${String(type)} ${String(status)} ${String(reason)}`);

function viewOf(...objects: KubernetesObject[]) {
  return createClusterView([gatewayClass, ...objects], 0);
}

function statusOf(view: ReturnType<typeof viewOf>, kind: string, name: string, state = SERVED) {
  const status = desiredStatuses(view, () => state, 0).find(
    ({ object: one }) => one.kind === kind && one.metadata.name === name,
  )?.status;
  const listeners = listOf(fieldsOf(status).listeners).map(fieldsOf);
  return {
    conditions: shownConditions(fieldsOf(status).conditions),
    attachedSets: fieldsOf(status).attachedListenerSets,
    listeners: Object.fromEntries(listeners.map((one) => [String(one.name), shownConditions(one.conditions)])),
    attachedRoutes: Object.fromEntries(listeners.map((one) => [String(one.name), one.attachedRoutes])),
  };
}

test("the listeners of a set are served on the Gateway, each with its own routes", () => {
  const view = viewOf(
    gateway(),
    set("shop/more", [listener("a.test"), listener("b.test", { port: 8080 })]),
    route("infra/own", [{ name: "edge" }]),
    route("shop/all", [setRef("more")]),
    route("shop/a", [setRef("more", { sectionName: "a" })]),
  );
  assert.deepEqual(
    view.result.gateways.map(({ name, port }) => [name, port]),
    [
      ["infra/edge:80", 80],
      ["infra/edge:8080", 8080],
    ],
  );
  const served = view.result.routes.map(({ route: one, section }) => [
    one.name,
    one.gateways.join(),
    one.hostnames?.join(),
    section,
  ]);
  assert.deepEqual(served, [
    ["infra/own", "infra/edge:80", "own.test", "infra/edge:80#own"],
    ["shop/a", "infra/edge:80", "a.test", "infra/edge:80#shop/more/a"],
    ["shop/all", "infra/edge:80", "a.test", "infra/edge:80#shop/more/a"],
    ["shop/all@infra/edge:8080", "infra/edge:8080", "b.test", undefined],
  ]);
  const status = statusOf(view, "ListenerSet", "more");
  assert.deepEqual(status.conditions, ["Accepted True Accepted", "Programmed True Programmed"]);
  assert.deepEqual(status.attachedRoutes, { a: 2, b: 1 });
  assert.deepEqual(statusOf(view, "Gateway", "edge").attachedSets, 1);
  assert.deepEqual(statusOf(view, "Gateway", "edge").attachedRoutes, { own: 1 });
  const kinds = view.snapshots.get("infra/edge")?.documents.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  assert.deepEqual(kinds, ["Gateway edge", "ListenerSet more", "HTTPRoute own", "HTTPRoute all", "HTTPRoute a"]);
  const options = { image: "i", replicas: 1, serviceType: "ClusterIP", backendNetworks: "" } as const;
  const [, , service] = dataPlaneManifests(
    gateway(),
    { ...options, controllerUrl: "https://controller", certificate: "", digestKey: "" },
    {},
    view.result.listenerSetOutcomes.flatMap(({ ports }) => ports),
  );
  assert.deepEqual(
    listOf(fieldsOf(service?.spec).ports).map((port) => fieldsOf(port).port),
    [80, 8080],
  );
});

const selector = { from: "Selector", selector: { matchLabels: { team: "web" } } };
for (const [from, namespace, isAllowed] of [
  [undefined, "infra", false],
  ["None", "infra", false],
  ["Same", "infra", true],
  ["Same", "shop", false],
  ["All", "shop", true],
  [selector, "shop", true],
  [selector, "other", false],
] as const)
  test(`allowedListeners ${JSON.stringify(from)} ${isAllowed ? "allows" : "refuses"} a set in ${namespace}`, () => {
    const shop: KubernetesObject = {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: "shop", labels: { team: "web" } },
    };
    const base =
      from === undefined
        ? object("Gateway", "infra/edge", { ...fieldsOf(gateway().spec), allowedListeners: undefined })
        : gateway(from);
    const view = viewOf(
      shop,
      base,
      set(`${namespace}/more`, [listener("a.test", { port: 8080 })]),
      route(`${namespace}/web`, [setRef("more")]),
    );
    const status = statusOf(view, "ListenerSet", "more");
    assert.deepEqual(
      status.conditions,
      isAllowed
        ? ["Accepted True Accepted", "Programmed True Programmed"]
        : ["Accepted False NotAllowed", "Programmed False NotAllowed"],
    );
    assert.equal(view.result.gateways.length, isAllowed ? 2 : 1);
    assert.equal(statusOf(view, "Gateway", "edge").attachedSets, isAllowed ? 1 : 0);
    const kinds = view.snapshots.get("infra/edge")?.documents.map(({ kind }) => kind);
    assert.equal(kinds?.includes("HTTPRoute"), isAllowed, "a set that is not allowed is not sent to data planes");
    assert.equal(
      view.result.routeOutcomes[0]?.parents[0]?.accepted.reason,
      isAllowed ? "Accepted" : "NoMatchingParent",
    );
  });

test("in a conflict the Gateway takes precedence, then the older set, then the name", () => {
  const at = (creationTimestamp: string) => ({ creationTimestamp });
  const view = viewOf(
    gateway(),
    set("shop/young", [listener("a.test")], {}, at("2026-01-02T00:00:00Z")),
    set(
      "shop/old",
      [listener("a.test"), listener("own.test"), { ...listener("tcp.test"), hostname: undefined, protocol: "TCP" }],
      {},
      at("2026-01-01T00:00:00Z"),
    ),
  );
  const conflict = (reason: string) => [
    `Accepted False ${reason}`,
    `Programmed False ${reason}`,
    "ResolvedRefs True ResolvedRefs",
    `Conflicted True ${reason}`,
  ];
  const fine = [
    "Accepted True Accepted",
    "Programmed True Programmed",
    "ResolvedRefs True ResolvedRefs",
    "Conflicted False NoConflicts",
  ];
  assert.deepEqual(statusOf(view, "Gateway", "edge").listeners, { own: fine });
  assert.equal(statusOf(view, "Gateway", "edge").attachedSets, 1);
  const old = statusOf(view, "ListenerSet", "old");
  assert.deepEqual(old.listeners, {
    a: fine,
    own: conflict("HostnameConflict"),
    tcp: conflict("ProtocolConflict"),
  });
  assert.deepEqual(old.conditions, ["Accepted True ListenersNotValid", "Programmed True Programmed"]);
  const young = statusOf(view, "ListenerSet", "young");
  assert.deepEqual(young.listeners, { a: conflict("HostnameConflict") });
  assert.deepEqual(young.conditions, ["Accepted False ListenersNotValid", "Programmed False ListenersNotValid"]);
  assert.doesNotMatch(JSON.stringify(view.result.listenerSetOutcomes.map((one) => one.listeners)), /listener (own|a),/);
});

test("a set does not serve the host name of a listener of the Gateway that is not valid", () => {
  const broken = listener("own.test", { allowedRoutes: { namespaces: { from: "All" }, later: true } });
  const view = viewOf(
    gateway("All", { listeners: [broken, listener("fine.test")] }),
    set("shop/more", [listener("own.test")]),
  );
  assert.deepEqual(statusOf(view, "ListenerSet", "more").conditions, [
    "Accepted False ListenersNotValid",
    "Programmed False ListenersNotValid",
  ]);
});

test("a grant for the Gateway is not one for its sets", () => {
  const data = {
    "tls.crt": Buffer.from(certificates.server.cert).toString("base64"),
    "tls.key": Buffer.from(certificates.server.key).toString("base64"),
  };
  const secret = (namespace: string): KubernetesObject => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "pair", namespace },
    data,
  });
  const grant = (kind: string): KubernetesObject => ({
    apiVersion: "gateway.networking.k8s.io/v1beta1",
    kind: "ReferenceGrant",
    metadata: { name: kind.toLowerCase(), namespace: "other" },
    spec: { from: [{ group: GROUP, kind, namespace: "infra" }], to: [{ group: "", kind: "Secret" }] },
  });
  const secured = (name: string, namespace: string) =>
    listener(`${name}.test`, { port: 443, protocol: "HTTPS", tls: { certificateRefs: [{ name: "pair", namespace }] } });
  const resolved = (...grants: string[]) =>
    statusOf(
      viewOf(
        gateway(),
        secret("other"),
        secret("infra"),
        set("infra/more", [secured("far", "other"), secured("near", "infra")]),
        ...grants.map(grant),
      ),
      "ListenerSet",
      "more",
    ).listeners;
  assert.match(String(resolved("Gateway").far), /ResolvedRefs False RefNotPermitted/);
  assert.match(String(resolved("Gateway").near), /Programmed True.*ResolvedRefs True/);
  assert.match(String(resolved("ListenerSet").far), /Programmed True.*ResolvedRefs True/);
});

test("a policy of a set covers its listeners, and a policy of the Gateway all of them", () => {
  const keys = { apiKeyAuthentication: { keys: [{ key: { secretRef: { name: "keys", key: "key" } } }] } };
  const secret = (namespace: string): KubernetesObject => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "keys", namespace },
    data: { key: "c2VzYW1lLXNlc2FtZS1zZXNhbWU=" },
  });
  const objects = [
    gateway(),
    secret("infra"),
    secret("shop"),
    set("shop/more", [listener("a.test"), listener("b.test")]),
    route("shop/web", [setRef("more")]),
  ];
  const attached = (...policies: KubernetesObject[]) =>
    viewOf(...objects, ...policies)
      .result.attachments.map(({ target, document }) => {
        const { metadata } = document.value as KubernetesObject;
        return `${metadata.name} ${target.name}`;
      })
      .sort();
  const ofSet = policy("shop/tenant", setRef("more"), keys, { creationTimestamp: "2026-01-01T00:00:00Z" });
  const ofSection = policy("shop/section", setRef("more", { sectionName: "b" }), keys);
  const ofGateway = policy("infra/owner", { kind: "Gateway", name: "edge" }, keys, {
    creationTimestamp: "2026-01-02T00:00:00Z",
  });
  assert.deepEqual(attached(ofSet), ["tenant infra/edge:80#shop/more/a", "tenant infra/edge:80#shop/more/b"]);
  assert.deepEqual(attached(ofSection), ["section infra/edge:80#shop/more/b"]);
  assert.deepEqual(
    attached(ofSet, ofGateway),
    ["#own", "#shop/more/a", "#shop/more/b", ""].map((section) => `owner infra/edge:80${section}`).sort(),
    "an older policy of the set does not replace that of the Gateway",
  );
  const view = viewOf(...objects, ofSet);
  const names = view.snapshots.get("infra/edge")?.documents.map(({ metadata }) => metadata.name);
  assert.ok(names?.includes("tenant"), "the policy is in the snapshot");
  assert.deepEqual(
    view.result.policies[0]?.status.ancestors.map(({ ancestorRef }) => `${ancestorRef.kind} ${ancestorRef.name}`),
    ["Gateway edge"],
  );
});

test("a set reports that its Gateway is not accepted or not served", () => {
  const refused = viewOf(gateway("All", { defaultScope: "All" }), set("shop/more", [listener("a.test")]));
  assert.deepEqual(statusOf(refused, "ListenerSet", "more").conditions, [
    "Accepted False ParentNotAccepted",
    "Programmed False ParentNotProgrammed",
  ]);
  const pending = viewOf(gateway(), set("shop/more", [listener("a.test")]));
  assert.deepEqual(statusOf(pending, "ListenerSet", "more", PENDING).conditions, [
    "Accepted True Accepted",
    "Programmed False ParentNotProgrammed",
  ]);
});

test("a set of another controller's Gateway has no status", () => {
  const foreign = object("Gateway", "infra/edge", { gatewayClassName: "other", listeners: [listener("own.test")] });
  const view = viewOf(foreign, set("shop/more", [listener("a.test")]), route("shop/web", [setRef("more")]));
  assert.deepEqual(
    desiredStatuses(view, () => SERVED, 0).map(({ object: { kind } }) => kind),
    ["GatewayClass"],
  );
});

test("a set that is created while policies cannot be read waits", () => {
  const objects = createHeldObjects();
  const before = [gatewayClass, gateway()];
  objects.split(before, true);
  const added = [set("shop/more", [listener("a.test")]), route("shop/web", [setRef("more")])];
  const { usable, held } = objects.split([...before, ...added], false);
  assert.deepEqual(held, added);
  const statuses = heldStatuses(held, createClusterView(usable, 0), ["GatewayPolicy"], 0);
  assert.deepEqual(
    statuses.map(({ object: { kind }, status }) => [
      kind,
      ...shownConditions(status.conditions ?? fieldsOf(listOf(status.parents)[0]).conditions),
    ]),
    [
      ["ListenerSet", "Accepted False Pending", "Programmed False Pending"],
      ["HTTPRoute", "Accepted False Pending", "ResolvedRefs False Pending"],
    ],
  );
});
