/**
 * InferencePools in the controller: the endpoints and the picker that data planes get, and the conditions of each parent.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import { type KubernetesObject, objectKey } from "../config/documents/cluster.ts";
import { type Fields, fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { silentLogger } from "../record/log/logger.ts";
import { ApiError } from "./api-client.ts";
import { KINDS, keptParts, openClusterCache } from "./cluster-cache.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { desiredStatuses } from "./status.ts";

const GATEWAY_API = "gateway.networking.k8s.io";
const POOL_API = "inference.networking.k8s.io";

function object(apiVersion: string, kind: string, key: string, spec: object, more: object = {}): KubernetesObject {
  const [namespace = "", name = ""] = key.includes("/") ? key.split("/") : ["", key];
  return { apiVersion, kind, metadata: { name, ...(namespace === "" ? {} : { namespace }), ...more }, spec };
}

const PICKER = { name: "picker", port: { number: 9002 } };
const pool = (more: object = { endpointPickerRef: PICKER }, key = "shop/models") =>
  object(`${POOL_API}/v1`, "InferencePool", key, {
    selector: { matchLabels: { app: "models" } },
    targetPorts: [{ number: 8000 }, { number: 8001 }],
    ...more,
  });
const reference = (name = "models", more: object = {}) => ({ group: POOL_API, kind: "InferencePool", name, ...more });
const route = (backendRefs: readonly object[], parents: readonly object[] = [{ name: "edge", namespace: "infra" }]) =>
  object(`${GATEWAY_API}/v1`, "HTTPRoute", "shop/models", { parentRefs: parents, rules: [{ backendRefs }] });
const gateway = (name: string) =>
  object(`${GATEWAY_API}/v1`, "Gateway", `infra/${name}`, {
    gatewayClassName: "gateway",
    listeners: [{ name: "http", port: 80, protocol: "HTTP", allowedRoutes: { namespaces: { from: "All" } } }],
  });
const service = (key: string, port: object = {}, spec: object = {}) =>
  object("v1", "Service", key, { ports: [{ port: 9002, ...port }], ...spec });

const WORLD = [
  object(`${GATEWAY_API}/v1`, "GatewayClass", "gateway", { controllerName: "policy.gateway.internal/gateway" }),
  object("v1", "Namespace", "shop", {}),
  gateway("edge"),
  gateway("inner"),
];

const POD = KINDS.find(({ kind }) => kind === "Pod");

function pod(name: string, status: object, more: object = {}): KubernetesObject[] {
  assert.ok(POD);
  const { labels = { app: "models" }, ...metadata } = more as { labels?: Record<string, string> };
  const whole = object("v1", "Pod", `shop/${name}`, {}, { labels, ...metadata });
  return [keptParts({ ...whole, status }, POD)].filter((one) => one !== undefined);
}

const ready = (podIP: string) => ({ podIP, conditions: [{ type: "Ready", status: "True" }] });

function view(...objects: KubernetesObject[]) {
  return createClusterView([...WORLD, ...objects], 0);
}

/** The conditions of each parent of the pool, as `type=status reason`. */
function parentsOf(seen: ReturnType<typeof view>, key = "shop/models"): Record<string, string[]> | undefined {
  const state = { programmed: { isTrue: true, reason: "Programmed", message: "" }, addresses: [], refused: new Map() };
  const found = desiredStatuses(seen, () => state, 0).find(
    (one) => one.object.kind === "InferencePool" && objectKey(one.object) === key,
  );
  if (found === undefined) return undefined;
  return Object.fromEntries(
    listOf(found.status.parents)
      .map(fieldsOf)
      .map(({ parentRef, conditions }) => {
        const { namespace, name } = fieldsOf(parentRef);
        const shown = listOf(conditions)
          .map(fieldsOf)
          .map(({ type, status, reason }) => `${String(type)}=${String(status)} ${String(reason)}`);
        return [`${String(namespace)}/${String(name)}`, shown];
      }),
  );
}

const backendOf = (seen: ReturnType<typeof view>): Fields => fieldsOf(listOf(seen.result.routes[0]?.route.backends)[0]);
const resolvedOf = (seen: ReturnType<typeof view>): string =>
  String(seen.result.routeOutcomes[0]?.parents[0]?.resolvedRefs.reason);
const OK = ["Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs"];

test("a pool serves the ready pods that it selects, on each port, through its picker", () => {
  const seen = view(
    pool(),
    route([reference()]),
    service("shop/picker"),
    ...pod("one", ready("10.0.0.1")),
    ...pod("six", ready("fd00::6")),
    ...pod("starting", { podIP: "10.0.0.2", conditions: [{ type: "Ready", status: "False" }] }),
    ...pod("ending", ready("10.0.0.3"), { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    ...pod("other", ready("10.0.0.4"), { labels: { app: "web" } }),
    ...pod("pending", { conditions: [{ type: "Ready", status: "True" }] }),
  );
  assert.deepEqual(backendOf(seen), {
    service: { name: "inferencepool/shop/models" },
    policies: {
      endpointPicker: {
        service: "shop/picker:9002",
        tls: { hostname: "picker.shop.svc", insecure: true },
        failureMode: "closed",
      },
    },
  });
  const { endpoints = {}, documents = [] } = seen.snapshots.get("infra/edge") ?? {};
  assert.deepEqual(endpoints["inferencepool/shop/models"], [
    "10.0.0.1:8000",
    "10.0.0.1:8001",
    "[fd00::6]:8000",
    "[fd00::6]:8001",
  ]);
  assert.ok("shop/picker:9002" in endpoints);
  assert.deepEqual(
    documents.filter(({ kind }) => kind === "Pod"),
    [],
  );
  assert.deepEqual(seen.snapshots.get("infra/inner")?.endpoints, {});
  assert.deepEqual(parentsOf(seen), { "infra/edge": OK });
});

test("the picker's protocol, failure mode, and the pool's protocol are read", () => {
  const seen = view(
    pool({ endpointPickerRef: { ...PICKER, failureMode: "FailOpen" }, appProtocol: "kubernetes.io/h2c" }),
    route([reference("models", { port: 1 })]),
    service("shop/picker", { appProtocol: "kubernetes.io/h2c" }),
  );
  assert.deepEqual(backendOf(seen), {
    service: { name: "inferencepool/shop/models" },
    protocol: "h2c",
    policies: { endpointPicker: { service: "shop/picker:9002", failureMode: "open" } },
  });
  const withoutPicker = view(pool({}), route([reference()]));
  assert.deepEqual(backendOf(withoutPicker), { service: { name: "inferencepool/shop/models" } });
  assert.deepEqual(parentsOf(withoutPicker), { "infra/edge": OK });
});

test("a BackendTLSPolicy verifies the picker's certificate, and an invalid one closes the pool", () => {
  const policy = (validation: object) =>
    object(`${GATEWAY_API}/v1`, "BackendTLSPolicy", "shop/picker-tls", {
      targetRefs: [{ group: "", kind: "Service", name: "picker" }],
      validation,
    });
  const valid = view(
    pool(),
    route([reference()]),
    service("shop/picker"),
    policy({ hostname: "picker.test", wellKnownCACertificates: "System" }),
  );
  const { endpointPicker } = fieldsOf(backendOf(valid).policies);
  assert.deepEqual(fieldsOf(endpointPicker).tls, { hostname: "picker.test" });
  const invalid = view(pool(), route([reference()]), service("shop/picker"), policy({ hostname: "picker.test" }));
  assert.equal(fieldsOf(backendOf(invalid).policies).endpointPicker, undefined);
  assert.equal(invalid.result.routes[0]?.closedBackends?.size, 1);
});

for (const [name, picker, objects] of [
  ["a missing Service", PICKER, []],
  ["a missing port", { ...PICKER, port: { number: 1 } }, [service("shop/picker")]],
  ["no port", { name: "picker" }, [service("shop/picker")]],
  ["an ExternalName", PICKER, [service("shop/picker", {}, { type: "ExternalName", externalName: "a.test" })]],
  ["another kind", { ...PICKER, kind: "Picker" }, [service("shop/picker")]],
  ["another group", { ...PICKER, group: "example.com" }, [service("shop/picker")]],
  ["a Service of another namespace", PICKER, [service("other/picker")]],
] as const)
  test(`a picker with ${name} closes the pool`, () => {
    const seen = view(pool({ endpointPickerRef: picker }), route([reference()]), ...objects);
    assert.deepEqual(backendOf(seen), { host: "reference.invalid:1" });
    assert.equal(seen.result.routes[0]?.closedBackends?.size, 1);
    assert.equal(seen.result.routeOutcomes[0]?.parents[0]?.accepted.isTrue, true);
    assert.deepEqual(parentsOf(seen), {
      "infra/edge": ["Accepted=True Accepted", "ResolvedRefs=False InvalidExtensionRef"],
    });
  });

test("values that are not supported close the pool", () => {
  for (const more of [{ appProtocol: "ws" }, { endpointPickerRef: { ...PICKER, failureMode: "FailSoft" } }]) {
    const seen = view(pool(more), route([reference()]), service("shop/picker"));
    assert.equal(seen.result.routes[0]?.closedBackends?.size, 1);
    assert.deepEqual(parentsOf(seen)?.["infra/edge"]?.[0], "Accepted=False UnsupportedValue");
  }
});

test("each Gateway with a route has an entry, other entries stay, and old ones go", () => {
  const known = {
    parents: [
      { parentRef: { name: "x" }, controllerName: "example.com/other", conditions: [] },
      { parentRef: { name: "gone" }, controllerName: "policy.gateway.internal/gateway", conditions: [] },
    ],
  };
  const both = [
    { name: "edge", namespace: "infra" },
    { name: "inner", namespace: "infra" },
    { name: "unknown", namespace: "infra" },
  ];
  const used = view({ ...pool(), status: known }, route([reference()], both), service("shop/picker"));
  assert.deepEqual(parentsOf(used), { "undefined/x": [], "infra/edge": OK, "infra/inner": OK });
  const unused = view({ ...pool(), status: known });
  assert.deepEqual(parentsOf(unused), { "undefined/x": [] });
  assert.equal(parentsOf(view(pool())), undefined);
});

test("a route that no listener accepts is reported", () => {
  const seen = view(pool(), route([reference()], [{ name: "edge", namespace: "infra", sectionName: "no" }]));
  assert.equal(parentsOf(seen)?.["infra/edge"]?.[0], "Accepted=False HTTPRouteNotAccepted");
});

test("a pool of another namespace needs a grant", () => {
  const far = pool({}, "far/models");
  const closed = view(far, route([reference("models", { namespace: "far" })]));
  assert.deepEqual([resolvedOf(closed), parentsOf(closed, "far/models")], ["RefNotPermitted", undefined]);
  const grant = object(`${GATEWAY_API}/v1beta1`, "ReferenceGrant", "far/shop", {
    from: [{ group: GATEWAY_API, kind: "HTTPRoute", namespace: "shop" }],
    to: [{ group: POOL_API, kind: "InferencePool" }],
  });
  const open = view(far, grant, route([reference("models", { namespace: "far" })]));
  assert.deepEqual([resolvedOf(open), parentsOf(open, "far/models")], ["ResolvedRefs", { "infra/edge": OK }]);
});

test("a missing pool, a mirror, and other kinds of routes are refused", () => {
  assert.equal(resolvedOf(view(route([reference("absent")]))), "BackendNotFound");
  const parentRefs = [{ name: "edge", namespace: "infra" }];
  const filters = [{ type: "RequestMirror", requestMirror: { backendRef: reference() } }];
  const mirrored = object(`${GATEWAY_API}/v1`, "HTTPRoute", "shop/models", { parentRefs, rules: [{ filters }] });
  const stream = object(`${GATEWAY_API}/v1`, "TCPRoute", "shop/models", {
    parentRefs,
    rules: [{ backendRefs: [reference()] }],
  });
  for (const one of [mirrored, stream]) assert.equal(resolvedOf(view(pool({}), one)), "InvalidKind");
});

test("a GRPCRoute calls the pods of a pool over HTTP/2 and is in the pool's status", () => {
  const calls = object(`${GATEWAY_API}/v1`, "GRPCRoute", "shop/models", {
    parentRefs: [{ name: "edge", namespace: "infra" }],
    rules: [{ backendRefs: [reference()] }],
  });
  const seen = view(pool(), calls, service("shop/picker"));
  const { service: target, protocol, policies } = backendOf(seen);
  assert.deepEqual([target, protocol], [{ name: "inferencepool/shop/models" }, "h2c"]);
  assert.notEqual(fieldsOf(policies).endpointPicker, undefined);
  assert.deepEqual([resolvedOf(seen), parentsOf(seen)], ["ResolvedRefs", { "infra/edge": OK }]);
  const far = view(pool({}, "far/models"), {
    ...calls,
    spec: { ...fieldsOf(calls.spec), rules: [{ backendRefs: [reference("models", { namespace: "far" })] }] },
  });
  assert.deepEqual([resolvedOf(far), parentsOf(far, "far/models")], ["RefNotPermitted", undefined]);
});

test("a pool has the Gateways of the routes that delegate to its route, at all levels", () => {
  const delegating = (name: string, child: string, parentRefs?: readonly object[]) =>
    object(`${GATEWAY_API}/v1`, "HTTPRoute", `shop/${name}`, {
      ...(parentRefs === undefined ? {} : { parentRefs }),
      rules: [{ backendRefs: [{ group: GATEWAY_API, kind: "HTTPRoute", name: child }] }],
    });
  const root = (sectionName?: string) =>
    delegating("root", "middle", [{ name: "inner", namespace: "infra", ...(sectionName ? { sectionName } : {}) }]);
  const child = object(`${GATEWAY_API}/v1`, "HTTPRoute", "shop/models", { rules: [{ backendRefs: [reference()] }] });
  const rest = [pool(), child, delegating("middle", "models"), service("shop/picker")];
  assert.deepEqual(parentsOf(view(root(), ...rest)), { "infra/inner": OK });
  assert.equal(parentsOf(view(...rest)), undefined, "no route of a Gateway delegates to it");
  assert.equal(parentsOf(view(root(), ...rest.slice(0, 2), service("shop/picker"))), undefined, "a missing link");
});

test("pods are read only while a pool exists, and the controller works without the right to read them", async (t) => {
  const kinds = KINDS.filter(({ kind }) => kind === "InferencePool" || kind === "Pod");
  const pools = `/apis/${POOL_API}/v1/inferencepools`;
  const clock = fakeClock();
  const api = fakeApi();
  api.install(pools, "/api/v1/pods");
  api.put("/api/v1/pods", {
    metadata: { name: "one", namespace: "shop", labels: { app: "models" } } as never,
    status: ready("10.0.0.1"),
  });
  const parts = {
    client: api,
    clock,
    logger: silentLogger,
    random: () => 0,
    changed: () => undefined,
    statusChanged: () => undefined,
  };
  const cache = openClusterCache(kinds, parts);
  t.after(() => cache.stop());
  await clock.advance(1);
  assert.equal(cache.isSynced(), true);
  const podReads = () => api.requests.filter(({ path }) => path.startsWith("/api/v1/pods")).length;
  assert.equal(podReads(), 0);
  api.put(pools, pool() as never);
  await clock.advance(1);
  assert.deepEqual(cache.of("Pod")[0]?.data, { labels: { app: "models" }, ip: "10.0.0.1" });
  api.remove(pools, "shop", "models");
  await clock.advance(1);
  assert.deepEqual(cache.of("Pod"), []);

  const denied = fakeApi();
  denied.install(pools);
  denied.put(pools, pool() as never);
  const request = denied.request.bind(denied);
  const refusing = {
    ...denied,
    request: (one: Parameters<typeof request>[0]) =>
      one.path.startsWith("/api/v1/pods")
        ? Promise.reject(new ApiError(403, "Forbidden", "pods is forbidden"))
        : request(one),
  };
  const limited = openClusterCache(kinds, { ...parts, client: refusing });
  t.after(() => limited.stop());
  await clock.advance(1);
  assert.deepEqual([limited.isSynced(), limited.of("InferencePool").length], [true, 1]);
});
