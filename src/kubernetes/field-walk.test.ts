/**
 * Walks every field of the CustomResourceDefinitions of the Gateway API (experimental channel, which includes the
 * standard one) and its Inference Extension: changing or removing a field changes what is served, or a condition that names the field refuses it. Run
 * scripts/kubernetes/crd-fields.mjs to update the list of fields; a new field then needs a fixture below.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { certificates } from "../../test/support/tls/certificates.ts";
import { type KubernetesObject, objectKey } from "../config/documents/cluster.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { dataPlaneManifests } from "./data-plane-deployment.ts";
import { desiredStatuses } from "./status.ts";

const { kinds } = JSON.parse(readFileSync(join(process.cwd(), "test/support/kubernetes/crd-fields.json"), "utf8")) as {
  readonly kinds: Readonly<Record<string, readonly string[]>>;
};

/** Fields without an effect on traffic. */
const FOR_PEOPLE = new Set(["GatewayClass spec.description"]);

const API = "gateway.networking.k8s.io/v1";
const base64 = (value: string): string => Buffer.from(value).toString("base64");
const pairData = { "tls.crt": base64(certificates.server.cert), "tls.key": base64(certificates.server.key) };

function object(apiVersion: string, kind: string, key: string, content: object): KubernetesObject {
  const [name = "", namespace] = key.split("/").reverse();
  return { apiVersion, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) }, ...content };
}

const grant = (kind: string, namespace: string, to: string) =>
  object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", `other/${kind}-${to}`.toLowerCase(), {
    spec: {
      from: [{ group: "gateway.networking.k8s.io", kind, namespace }],
      to: [{ group: "", kind: to }],
    },
  });
const httpListener = { name: "http", port: 80, protocol: "HTTP", allowedRoutes: { namespaces: { from: "All" } } };
const httpsListener = { ...httpListener, name: "https", port: 443, protocol: "HTTPS" };
const secured = { ...httpsListener, tls: { certificateRefs: [{ name: "pair" }] } };
const tlsListener = { ...httpListener, name: "tls", port: 443, protocol: "TLS", tls: { mode: "Passthrough" } };
const tcpListener = { ...httpListener, name: "tcp", port: 9000, protocol: "TCP" };
const extraListener = { ...httpListener, name: "extra", port: 8080 };
const gatewaySpec = { gatewayClassName: "gateway", listeners: [httpListener] };
const parent = { name: "edge", namespace: "infra" };
const service = (name: string) => ({
  spec: {
    ports: [
      { name: "main", port: 8080 },
      { name: "next", port: 8081 },
    ],
  },
  name,
});

const WORLD: readonly KubernetesObject[] = [
  object("v1", "Namespace", "infra", {}),
  object("v1", "Namespace", "other", {}),
  {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: "shop", labels: { team: "web", stage: "live" } },
  },
  object(API, "GatewayClass", "gateway", { spec: { controllerName: "policy.gateway.internal/gateway" } }),
  object(API, "Gateway", "infra/edge", { spec: gatewaySpec }),
  object("v1", "Secret", "infra/pair", { data: pairData }),
  object("v1", "Secret", "other/pair", { data: pairData }),
  object("v1", "ConfigMap", "infra/roots", { data: { "ca.crt": certificates.root } }),
  object("v1", "ConfigMap", "other/roots", { data: { "ca.crt": certificates.root } }),
  object("v1", "ConfigMap", "shop/roots", { data: { "ca.crt": certificates.root } }),
  object("v1", "Service", "shop/web", service("web")),
  object("v1", "Service", "other/far", service("far")),
  grant("Gateway", "infra", "Secret"),
  grant("Gateway", "infra", "ConfigMap"),
  grant("ListenerSet", "shop", "Secret"),
  grant("HTTPRoute", "shop", "Service"),
  grant("GRPCRoute", "shop", "Service"),
  grant("TLSRoute", "shop", "Service"),
  grant("TCPRoute", "shop", "Service"),
  object(API, "Gateway", "infra/wires", { spec: { ...gatewaySpec, listeners: [tlsListener, tcpListener] } }),
  object(API, "Gateway", "infra/open", {
    spec: { ...gatewaySpec, allowedListeners: { namespaces: { from: "All" } } },
  }),
  object(API, "ListenerSet", "shop/more", { spec: { parentRef: parent, listeners: [extraListener] } }),
  ...["shop", "infra"].map((namespace) =>
    object(API, "HTTPRoute", `${namespace}/extra`, {
      spec: { parentRefs: [{ kind: "ListenerSet", name: "extra", namespace: "shop" }], rules: [{}] },
    }),
  ),
  object(API, "HTTPRoute", "shop/web", {
    spec: { parentRefs: [parent], rules: [{ backendRefs: [{ name: "web", port: 8080 }] }] },
  }),
  object(API, "GRPCRoute", "shop/calls", {
    spec: { parentRefs: [parent], rules: [{ backendRefs: [{ name: "web", port: 8080 }] }] },
  }),
  object("inference.networking.k8s.io/v1", "InferencePool", "shop/models", { spec: {} }),
  ...["one", "two"].map((name, i) =>
    object("v1", "Pod", `shop/${name}`, { data: { labels: { app: name, tier: "gpu" }, ip: `10.0.0.${i}` } }),
  ),
  object(API, "HTTPRoute", "shop/models", {
    spec: {
      parentRefs: [parent],
      rules: [{ backendRefs: [{ group: "inference.networking.k8s.io", kind: "InferencePool", name: "models" }] }],
    },
  }),
  object("policy.gateway.internal/v1alpha1", "GatewayPolicy", "shop/named", {
    spec: {
      targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web", sectionName: "named" }],
      traffic: { rateLimit: { local: [{ requests: 3, unit: "Seconds" }] } },
    },
  }),
];

type Spec = Readonly<Record<string, unknown>>;

const selector = {
  matchLabels: { team: "web" },
  matchExpressions: [{ key: "stage", operator: "In", values: ["live"] }],
};

function listenerSetFixtures(): Spec[] {
  const parentRef = { group: "gateway.networking.k8s.io", kind: "Gateway", name: "open", namespace: "infra" };
  const withListener = (more: object): Spec => ({ parentRef, listeners: [{ ...extraListener, ...more }] });
  const kinds = [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute" }];
  const tls = {
    mode: "Terminate",
    certificateRefs: [{ group: "", kind: "Secret", name: "pair", namespace: "other" }],
  };
  return [
    withListener({ hostname: "a.test", allowedRoutes: { namespaces: { from: "All" }, kinds } }),
    withListener({ allowedRoutes: { namespaces: { from: "Selector", selector } } }),
    withListener({ protocol: "HTTPS", tls }),
    withListener({ protocol: "HTTPS", tls: { ...tls, options: { "example.com/ciphers": "weak" } } }),
  ];
}

function gatewayFixtures(): Spec[] {
  const listener = (more: object) => ({ ...gatewaySpec, listeners: [{ ...httpListener, ...more }] });
  const roots = (name: string) => [{ group: "", kind: "ConfigMap", name, namespace: "other" }];
  const validation = { mode: "AllowValidOnly", caCertificateRefs: roots("roots") };
  const certificateRef = { group: "", kind: "Secret", name: "pair", namespace: "other" };
  return [
    gatewaySpec,
    listener({
      hostname: "a.test",
      allowedRoutes: {
        namespaces: { from: "All" },
        kinds: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute" }],
      },
    }),
    listener({ allowedRoutes: { namespaces: { from: "Selector", selector } } }),
    { ...gatewaySpec, listeners: [{ ...secured, tls: { mode: "Terminate", certificateRefs: [certificateRef] } }] },
    {
      ...gatewaySpec,
      listeners: [{ ...secured, tls: { ...secured.tls, options: { "example.com/ciphers": "weak" } } }],
    },
    { ...gatewaySpec, addresses: [{ type: "IPAddress", value: "203.0.113.9" }] },
    { ...gatewaySpec, allowedListeners: { namespaces: { from: "Selector", selector } } },
    { ...gatewaySpec, infrastructure: { labels: { tier: "edge" }, annotations: { "example.com/note": "a" } } },
    { ...gatewaySpec, infrastructure: { parametersRef: { group: "example.com", kind: "Parameters", name: "large" } } },
    { ...gatewaySpec, defaultScope: "All" },
    { ...gatewaySpec, listeners: [secured], tls: { backend: { clientCertificateRef: certificateRef } } },
    { ...gatewaySpec, listeners: [secured], tls: { frontend: { default: { validation } } } },
    { ...gatewaySpec, listeners: [secured], tls: { frontend: { perPort: [{ port: 443, tls: { validation } }] } } },
  ];
}

const backendReference = { group: "", kind: "Service", name: "far", namespace: "other", port: 8080 };
const changes = { add: [{ name: "x-a", value: "1" }], set: [{ name: "x-b", value: "2" }], remove: ["x-c"] };
const mirror = (share: object) => ({
  type: "RequestMirror",
  requestMirror: { backendRef: backendReference, ...share },
});
const GRPC_FILTERS: readonly Spec[] = [
  { type: "RequestHeaderModifier", requestHeaderModifier: changes },
  { type: "ResponseHeaderModifier", responseHeaderModifier: changes },
  mirror({ percent: 20 }),
  mirror({ fraction: { numerator: 1, denominator: 3 } }),
  { type: "ExtensionRef", extensionRef: { group: "example.com", kind: "Filter", name: "own" } },
];
const fullPath = { type: "ReplaceFullPath", replaceFullPath: "/new" };
const prefixPath = { type: "ReplacePrefixMatch", replacePrefixMatch: "/new" };
const HTTP_FILTERS: readonly Spec[] = [
  ...GRPC_FILTERS,
  {
    type: "RequestRedirect",
    requestRedirect: { scheme: "https", hostname: "b.test", port: 444, statusCode: 301, path: fullPath },
  },
  { type: "RequestRedirect", requestRedirect: { path: prefixPath } },
  { type: "URLRewrite", urlRewrite: { hostname: "b.test", path: fullPath } },
  { type: "URLRewrite", urlRewrite: { path: prefixPath } },
  {
    type: "CORS",
    cors: {
      allowOrigins: ["https://a.test"],
      allowMethods: ["GET"],
      allowHeaders: ["x-a"],
      exposeHeaders: ["x-b"],
      allowCredentials: true,
      maxAge: 60,
    },
  },
  {
    type: "ExternalAuth",
    externalAuth: {
      protocol: "HTTP",
      backendRef: backendReference,
      http: { path: "/check", allowedHeaders: ["x-a"], allowedResponseHeaders: ["x-b"] },
      forwardBody: { maxSize: 10 },
    },
  },
  {
    type: "ExternalAuth",
    externalAuth: { protocol: "GRPC", backendRef: backendReference, grpc: { allowedHeaders: ["x-a"] } },
  },
];

function routeFixtures(filters: readonly Spec[], rules: readonly object[]): Spec[] {
  const route = (rule: object, more: object = {}): Spec => ({ parentRefs: [parent], rules: [rule], ...more });
  const backendRefs = [
    { ...backendReference, weight: 3 },
    { name: "web", port: 8080 },
  ];
  const whole = { group: "gateway.networking.k8s.io", kind: "Gateway", ...parent, sectionName: "http", port: 80 };
  return [
    route({ backendRefs }, { parentRefs: [whole], hostnames: ["a.test"] }),
    route({ backendRefs }, { useDefaultGateways: "All" }),
    ...filters.map((filter) => route({ filters: [filter], backendRefs })),
    ...filters.map((filter) => route({ backendRefs: [{ ...backendReference, filters: [filter] }] })),
    ...rules.map((rule) => route({}, { rules: [{ backendRefs, ...rule }, { backendRefs }] })),
  ];
}

function tcpRouteFixtures(listener: object, more: object): Spec[] {
  const whole = { group: "gateway.networking.k8s.io", kind: "Gateway", name: "wires", namespace: "infra", ...listener };
  const backendRefs = [
    { ...backendReference, weight: 3 },
    { name: "web", port: 8080 },
  ];
  const spec = { parentRefs: [whole], rules: [{ name: "named", backendRefs }], ...more };
  return [spec, { ...spec, useDefaultGateways: "All" }];
}

const sessionPersistence = {
  sessionName: "stick",
  type: "Cookie",
  absoluteTimeout: "1h",
  cookieConfig: { lifetimeType: "Permanent" },
};
const HTTP_RULES = [
  {
    name: "named",
    matches: [
      {
        path: { type: "Exact", value: "/a" },
        method: "GET",
        headers: [{ type: "Exact", name: "x-a", value: "1" }],
        queryParams: [{ type: "Exact", name: "q", value: "1" }],
      },
    ],
    timeouts: { request: "10s", backendRequest: "5s" },
    retry: { attempts: 2, backoff: "100ms", codes: [503] },
  },
  { sessionPersistence },
];
const GRPC_RULES = [
  {
    name: "named",
    matches: [
      {
        method: { type: "Exact", service: "a.B", method: "C" },
        headers: [{ type: "Exact", name: "x-a", value: "1" }],
      },
    ],
  },
  { sessionPersistence },
];

const TLS_TARGET = { group: "", kind: "Service", name: "web", sectionName: "main" };
const tlsValidation = (more: object): Spec => ({
  targetRefs: [TLS_TARGET],
  validation: {
    hostname: "backend.test",
    caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "roots" }],
    ...more,
  },
});

interface Fixture {
  readonly key: string;
  readonly specs: readonly Spec[];
}

const FIXTURES: Readonly<Record<string, Fixture>> = {
  GatewayClass: {
    key: "gateway",
    specs: [
      { controllerName: "policy.gateway.internal/gateway", description: "For the edge" },
      {
        controllerName: "policy.gateway.internal/gateway",
        parametersRef: { group: "example.com", kind: "Parameters", name: "large", namespace: "infra" },
      },
    ],
  },
  Gateway: { key: "infra/edge", specs: gatewayFixtures() },
  ListenerSet: { key: "shop/extra", specs: listenerSetFixtures() },
  HTTPRoute: { key: "shop/web", specs: routeFixtures(HTTP_FILTERS, HTTP_RULES) },
  GRPCRoute: { key: "shop/calls", specs: routeFixtures(GRPC_FILTERS, GRPC_RULES) },
  TLSRoute: {
    key: "shop/secure",
    specs: tcpRouteFixtures({ sectionName: "tls", port: 443 }, { hostnames: ["a.test"] }),
  },
  TCPRoute: { key: "shop/stream", specs: tcpRouteFixtures({ sectionName: "tcp", port: 9000 }, {}) },
  InferencePool: { key: "shop/models", specs: poolFixtures() },
  BackendTLSPolicy: {
    key: "shop/web-tls",
    specs: [
      tlsValidation({}),
      tlsValidation({ subjectAltNames: [{ type: "Hostname", hostname: "a.test" }] }),
      tlsValidation({ subjectAltNames: [{ type: "URI", uri: "spiffe://a.test" }] }),
      tlsValidation({ caCertificateRefs: undefined, wellKnownCACertificates: "System" }),
      { ...tlsValidation({}), options: { "example.com/ciphers": "weak" } },
    ],
  },
};

function poolFixtures(): Spec[] {
  const pool = { selector: { matchLabels: { app: "one" } }, targetPorts: [{ number: 8000 }] };
  const picker = { group: "", kind: "Service", name: "web", port: { number: 8080 } };
  return [
    { ...pool, appProtocol: "http", endpointPickerRef: { ...picker, failureMode: "FailClose" } },
    { ...pool, appProtocol: "kubernetes.io/h2c", endpointPickerRef: { ...picker, failureMode: "FailOpen" } },
  ];
}

/** The world in which the object of a fixture has this spec. */
function worldWith(kind: string, key: string, spec: unknown): KubernetesObject[] {
  const own = object(API, kind, key, { spec });
  return [...WORLD.filter((one) => one.kind !== kind || objectKey(one) !== objectKey(own)), own];
}

interface Observed {
  /** Everything that is served, deployed and reported. */
  readonly text: string;
  /** The messages of conditions that refuse something. */
  readonly refusals: string;
}

function observe(objects: readonly KubernetesObject[]): Observed {
  const view = createClusterView(objects, 0);
  const { gateways, routes, tcpRoutes, attachments, closures } = view.result;
  const state = { programmed: { isTrue: true, reason: "Programmed", message: "" }, addresses: [], refused: new Map() };
  const statuses = desiredStatuses(view, () => state, 0).map(({ object: { kind, metadata }, status }) => ({
    kind,
    name: metadata.name,
    conditions: [
      status.conditions,
      ...[...listOf(status.listeners), ...listOf(status.parents), ...listOf(status.ancestors)]
        .map(fieldsOf)
        .map(({ name, attachedRoutes, conditions }) => [name, attachedRoutes, conditions]),
    ],
  }));
  const manifests = view.gateways.map((gateway) =>
    dataPlaneManifests(gateway, {
      image: "image",
      replicas: 1,
      serviceType: "ClusterIP",
      backendNetworks: "",
      controllerUrl: "https://controller",
      certificate: "",
      digestKey: "",
    }),
  );
  const conditions = [
    ...JSON.stringify(statuses).matchAll(
      /"type":"(\w+)","status":"(\w+)","reason":"\w+","message":"((?:[^"\\]|\\.)*)"/g,
    ),
  ];
  const refusals = conditions
    .filter(([, type, status]) => (status === "False" && type !== "Conflicted") || type === "PartiallyInvalid")
    .map(([, , , message]) => message);
  // Paths and documents repeat what is written, whether it has an effect or not.
  const endpoints = [...view.snapshots.values()].map((snapshot) => snapshot.endpoints);
  const effects = { gateways, routes, tcpRoutes, attachments, closures, statuses, manifests, endpoints };
  const text = JSON.stringify(effects, (name, value) =>
    name === "document" || (name === "path" && Array.isArray(value)) ? undefined : value,
  );
  for (const { closed } of routes)
    if (closed !== undefined) assert.notDeepEqual(refusals, [], `a rule is blocked without a condition: ${closed}`);
  return { text, refusals: refusals.join("\n") };
}

type Step = string | number;

function* leavesOf(value: unknown, path: readonly Step[]): Iterable<readonly Step[]> {
  if (Array.isArray(value)) for (const [i, inner] of value.entries()) yield* leavesOf(inner, [...path, i]);
  else if (typeof value === "object" && value !== null)
    for (const [name, inner] of Object.entries(value)) yield* leavesOf(inner, [...path, name]);
  else if (value !== undefined) yield path;
}

function changed(value: unknown, [step, ...rest]: readonly Step[], change: (value: unknown) => unknown): unknown {
  if (step === undefined) return change(value);
  if (Array.isArray(value))
    return value.flatMap((inner, i) => (i === step ? [changed(inner, rest, change)].filter(isPresent) : [inner]));
  return { ...fieldsOf(value), [step]: changed(fieldsOf(value)[step], rest, change) };
}

const isPresent = (value: unknown): boolean => value !== undefined;

function otherValue(value: unknown): unknown {
  if (typeof value === "number") return value + 1;
  return typeof value === "boolean" ? !value : `${String(value)}x`;
}

/** Whether the field of the list has this concrete path. */
function isField(field: string, path: readonly Step[]): boolean {
  const steps = field.replaceAll("[]", ".[]").replaceAll("{}", ".{}").split(".");
  return (
    steps.length === path.length &&
    steps.every((step, i) => (step === "[]" ? typeof path[i] === "number" : step === "{}" || step === path[i]))
  );
}

/** Whether a change of the field has an effect, or the field or one around it is refused by name. */
function isHonoredOrRefused(
  kind: string,
  key: string,
  spec: Spec,
  path: readonly Step[],
  more: readonly KubernetesObject[] = [],
): boolean {
  const before = observe([...worldWith(kind, key, spec), ...more]);
  const observed = (at: readonly Step[], change: (value: unknown) => unknown): Observed =>
    observe([...worldWith(kind, key, fieldsOf(changed({ spec }, at, change)).spec), ...more]);
  if (observed(path, otherValue).text !== before.text) return true;
  if (observed(path, () => undefined).text !== before.text) return true;
  return path.some((step, i) => {
    if (i === 0 || typeof step === "number" || !before.refusals.includes(step)) return false;
    return observed(path.slice(0, i + 1), () => undefined).text !== before.text;
  });
}

for (const [kind, { key, specs }] of Object.entries(FIXTURES))
  test(`every field of ${kind} is honored or refused`, () => {
    const open = new Set(kinds[kind]);
    const ignored = new Set<string>();
    for (const spec of specs)
      for (const path of leavesOf(spec, ["spec"])) {
        const field = kinds[kind]?.find((one) => isField(one, path));
        assert.ok(field, `${kind} has no field ${path.join(".")}`);
        if (!open.has(field)) continue;
        if (isHonoredOrRefused(kind, key, spec, path) || FOR_PEOPLE.has(`${kind} ${field}`)) {
          open.delete(field);
          ignored.delete(field);
        } else ignored.add(field);
      }
    assert.deepEqual([...ignored], [], "fields without an effect");
    assert.deepEqual([...open], [], "fields without a fixture");
  });

test("every field of a rule that delegates to another HTTPRoute is honored or refused", () => {
  const name = "child";
  const child = object(API, "HTTPRoute", `shop/${name}`, { spec: { rules: [{ backendRefs: [backendReference] }] } });
  const reference = { group: "gateway.networking.k8s.io", kind: "HTTPRoute", name, namespace: "shop", weight: 1 };
  const rule = {
    ...HTTP_RULES[0],
    matches: [
      {
        path: { type: "PathPrefix", value: "/a" },
        method: "GET",
        headers: [{ type: "Exact", name: "x-a", value: "1" }],
        queryParams: [{ type: "Exact", name: "q", value: "1" }],
      },
    ],
    filters: HTTP_FILTERS.slice(0, 2),
    backendRefs: [reference],
  };
  const spec = { parentRefs: [parent], rules: [rule] };
  const ignored = [...leavesOf(spec, ["spec"])].filter(
    (path) => !isHonoredOrRefused("HTTPRoute", "shop/web", spec, path, [child]),
  );
  assert.deepEqual(ignored, []);
});
