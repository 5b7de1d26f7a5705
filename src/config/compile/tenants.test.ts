/**
 * Two namespaces with the same documents, in generated combinations of policies, backends, and references: nothing that
 * outlives a configuration is acquired without an owner, no document acquires what belongs to the other namespace, and
 * none changes what is compiled for it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { anExchange } from "../../../test/support/exchange.ts";
import { systemClock } from "../../base/clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { Owner, PROCESS_RESOURCES } from "../../base/owner.ts";
import type { SharedMemory } from "../../base/shared-memory.ts";
import { finish } from "../../base/sliced-work.ts";
import { createTasks } from "../../base/tasks.ts";
import type { Topology } from "../../core/topology.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { createRouteTable } from "../../pipeline/route/match-route.ts";
import { policies } from "../../policies/index.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createMetrics } from "../../record/log/metrics.ts";
import type { SignatureDomain, SigningKey } from "../../store/signing-key.ts";
import { noStore } from "../../store/store.ts";
import { createCluster, type KubernetesObject } from "../documents/cluster.ts";
import { partsOf } from "../documents/policy-spec.ts";
import { clusterDocument } from "../documents/snapshot.ts";
import { prepareConfig } from "../prepare.ts";
import { createLimitRegistry } from "./limit-registry.ts";

/** `TENANT_CASES=2000 npm test -- src/config/compile/tenants` is the whole run. */
const RUNS = Number(process.env.TENANT_CASES ?? 25);

/** Routes of another namespace that are compiled together. */
const TOGETHER = 50;
const ROUTE_RUNS = Math.max(40, Math.ceil(RUNS / 20));

const issuer = "https://idp.example";

/** A configuration of each policy, with all the state that it can have. */
const POLICIES: Readonly<Record<string, unknown>> = {
  ai: { promptGuard: { request: [{ webhook: { url: "https://guard.example/" } }] } },
  apiKey: { stored: true },
  authorization: { rules: ["true"] },
  backendAuth: { oauth: { tokenUrl: "https://idp.example/token" } },
  basicAuth: { htpasswd: "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=" },
  budgets: { limits: [{ name: "monthly", tokens: 10, per: "month" }], webhook: { url: "https://hook.example/" } },
  backendTLS: { insecure: true },
  buffer: { request: { maxBytes: 1024 } },
  cors: { allowOrigins: ["*"] },
  csrf: {},
  delay: { duration: "1ms" },
  directResponse: { status: 200 },
  endpointPicker: { host: "picker.example:1" },
  extAuthz: { host: "authz.example:1", cache: { key: ["request.path"], ttl: "5s" } },
  extProc: { host: "proc.example:1" },
  headerModifiers: { request: { set: { a: "b" } } },
  jwtAuth: { issuer, audiences: ["a"] },
  mcpAuthentication: {
    issuer,
    audiences: ["a"],
    clientId: "c",
    redirectUris: ["loopback"],
    resourceMetadata: { resource: "https://mcp.example/mcp" },
  },
  mcpAuthorization: { rules: ["true"] },
  mcpGuardrails: { processors: [{ host: "guard.example:1", methods: { initialize: "full" } }] },
  oidc: { issuer, clientId: "c", redirectUri: "https://mcp.example/cb" },
  rateLimit: {
    local: [{ requests: 3, unit: "Hours" }],
    global: {
      host: "limits.example:1",
      domain: "d",
      descriptors: [{ entries: [{ key: "k", value: '"v"' }], type: "requests" }],
    },
  },
  requestMirror: [{ host: "http://web.example" }],
  requestRedirect: { authority: "other.example" },
  retry: { attempts: 2 },
  sessionPersistence: {},
  timeouts: { request: "5s" },
  transformations: { request: { set: { a: '"b"' } } },
  urlRewrite: { path: { full: "/x" } },
};

const BACKENDS: Readonly<Record<string, object>> = {
  a2a: { a2a: { url: "https://agent.example/" } },
  ai: { ai: { provider: { openAI: {} }, cache: { ttl: "5m" } } },
  host: { host: "web.example:80" },
  mcp: { mcp: { targets: [{ name: "tools", mcp: { url: "https://mcp.example/mcp" } }] } },
};

const API = "gateway.networking.k8s.io";
const OWN = "policy.gateway.internal";
const TARGETS = ["HTTPRoute", "rule", "Gateway", "listener", "Backend", "Service", "selector"] as const;

interface Case {
  readonly kinds: readonly string[];
  readonly target: (typeof TARGETS)[number];
  readonly backend: string;
  readonly inFiles: boolean;
}

function policyTarget(target: Case["target"]): object {
  if (target === "selector") return { targetSelectors: [{ group: API, kind: "HTTPRoute", matchLabels: { x: "y" } }] };
  const of = {
    HTTPRoute: { group: API, kind: "HTTPRoute" },
    rule: { group: API, kind: "HTTPRoute", sectionName: "rule" },
    Gateway: { group: API, kind: "Gateway" },
    listener: { group: API, kind: "Gateway", sectionName: "http" },
    Backend: { group: OWN, kind: "Backend" },
    Service: { group: "", kind: "Service" },
  }[target];
  return { targetRefs: [{ ...of, name: "web" }] };
}

const parts = partsOf(policies);

function specOf(kinds: readonly string[]): Record<string, unknown> {
  const spec: Record<string, unknown> = {};
  for (const { field } of parts) {
    const kind = partKind(field);
    if (!kinds.includes(kind)) continue;
    let place = spec;
    for (const step of field.slice(0, -1)) {
      place[step] ??= {};
      place = place[step] as Record<string, unknown>;
    }
    place[String(field.at(-1))] = POLICIES[kind];
  }
  return spec;
}

/** The fields of a few policies have other names than their kinds. */
function partKind(field: readonly string[]): string {
  const name = String(field.at(-1));
  if (field[1] === "mcp") return `mcp${name[0]?.toUpperCase()}${name.slice(1)}`;
  return (
    { jwtAuthentication: "jwtAuth", apiKeyAuthentication: "apiKey", basicAuthentication: "basicAuth" }[name] ?? name
  );
}

function documentsOf({ kinds, target, backend }: Case, namespace: string, port: number): KubernetesObject[] {
  const metadata = { name: "web", namespace, labels: { x: "y" } };
  const isService = backend === "service";
  const backendRef = isService ? { name: "web", port: 8080 } : { group: OWN, kind: "Backend", name: "web" };
  const documents = [
    {
      apiVersion: `${API}/v1`,
      kind: "Gateway",
      spec: { gatewayClassName: "g", listeners: [{ name: "http", port, protocol: "HTTP" }] },
    },
    {
      apiVersion: `${API}/v1`,
      kind: "HTTPRoute",
      spec: {
        parentRefs: [{ name: "web" }],
        rules: [{ name: "rule", matches: [{ path: { type: "PathPrefix", value: "/" } }], backendRefs: [backendRef] }],
      },
    },
    ...(isService ? [] : [{ apiVersion: `${OWN}/v1alpha1`, kind: "Backend", spec: BACKENDS[backend] }]),
    { apiVersion: "v1", kind: "Service", spec: { ports: [{ name: "main", port: 8080 }] } },
    { apiVersion: `${OWN}/v1alpha1`, kind: "GatewayPolicy", spec: { ...policyTarget(target), ...specOf(kinds) } },
  ];
  return documents.map((document) => ({ ...document, metadata }) as KubernetesObject);
}

interface Compiled {
  readonly topology: Topology;
  /** Everything that was acquired, signed, or claimed, by its key. */
  readonly keys: readonly string[];
  readonly refused: readonly string[];
}

function compiledFrom(documents: readonly KubernetesObject[], inFiles: boolean): Compiled {
  const keys: string[] = [];
  const key: SigningKey = { sign: (domain: SignatureDomain) => domain, isSignature: () => false, isGiven: true };
  const shared: SharedMemory = {
    thread: 1,
    claim(name, bytes) {
      keys.push(name);
      return { buffer: new SharedArrayBuffer(bytes), isNew: true };
    },
    onDeath: (name) => void keys.push(name),
    release: () => undefined,
  };
  const prepared = finish(
    prepareConfig(
      inFiles
        ? [
            { file: "gateway.yaml", text: "{}" },
            ...documents.map((one, i) => ({ file: `${i}.yaml`, text: JSON.stringify(one) })),
          ]
        : [{ file: "gateway.yaml", text: "{}" }],
      {
        clock: systemClock,
        environment: {},
        fetcher: {
          of({ prefix }) {
            keys.push(prefix);
            return () => Promise.reject(new Error("nothing is fetched"));
          },
        },
        logger: silentLogger,
        tasks: createTasks(systemClock),
        metrics: createMetrics(),
        limits: createLimitRegistry(),
        memory: createMemoryBudget(systemClock),
        store: noStore,
        signingKey: {
          of(owner) {
            keys.push(owner.prefix);
            return key;
          },
        },
        shared,
        redaction: undefined,
        egress: (author) => EgressGuard.for(author).closed(),
        fileRead: () => undefined,
        generation: {
          acquire(name, _definition, open) {
            keys.push(name);
            return open();
          },
          serving: (action) => action(),
          commit: () => undefined,
          discard: () => undefined,
        },
        ...(inFiles
          ? {}
          : { cluster: { documents: documents.map(clusterDocument), cluster: createCluster(documents) } }),
      },
    ),
  );
  assert.ok(prepared.ok, prepared.ok ? "" : prepared.problems.join("\n"));
  const refused = prepared.resources.flatMap(({ kind, status }) =>
    status.ancestors.flatMap(({ conditions }) =>
      conditions.filter(({ status: is }) => is === "False").map(({ message }) => `${kind}: ${message}`),
    ),
  );
  return { topology: prepared.topology, keys, refused };
}

const kinds = parts.map(({ field }) => partKind(field));

test("each policy of a document has a row here", () => {
  assert.deepEqual(
    kinds.filter((kind) => POLICIES[kind] === undefined),
    [],
  );
});

test("each row is accepted, so that its state is acquired", () => {
  const found: string[] = [];
  for (const kind of kinds) {
    const isPicker = kind === "endpointPicker";
    const backend = kind.startsWith("mcp") ? "mcp" : isPicker ? "service" : "ai";
    // A policy of a cluster cannot name a host to mirror to.
    const inFiles = kind === "requestMirror";
    const one: Case = { kinds: [kind], target: isPicker ? "Service" : "HTTPRoute", backend, inFiles };
    const { refused } = compiledFrom(documentsOf(one, "a", 80), inFiles);
    found.push(...refused);
  }
  assert.deepEqual(found, []);
});

test("nothing of a document is acquired without its owner, and nothing of another namespace", async () => {
  const process = new Set(Object.keys(PROCESS_RESOURCES).map((name) => `*/${name}`));
  const some = fc.record({
    kinds: fc.uniqueArray(fc.constantFrom(...kinds), { minLength: 1, maxLength: 4 }),
    target: fc.constantFrom(...TARGETS),
    backend: fc.constantFrom(...Object.keys(BACKENDS), "service"),
    inFiles: fc.boolean(),
  });
  let owned = 0;
  fc.assert(
    fc.property(some, some, (a, b) => {
      const names = ["a", "b"] as const;
      const both = names.map((namespace, i) => ({
        namespace,
        documents: documentsOf({ ...(i === 0 ? a : b), inFiles: a.inFiles }, namespace, 80 + i),
      }));
      const alone = both.map(({ documents }) => compiledFrom(documents, a.inFiles).keys);
      const together = compiledFrom(
        both.flatMap(({ documents }) => documents),
        a.inFiles,
      ).keys;
      for (const key of together) assert.ok(key.startsWith("@a/") || key.startsWith("@b/") || process.has(key), key);
      for (const [i, { namespace }] of both.entries()) {
        const prefix = Owner.ofNamespace(namespace).prefix;
        const own = together.filter((key) => key.startsWith(prefix));
        // The other namespace changes nothing.
        assert.deepEqual(
          own,
          alone[i]?.filter((key) => !process.has(key)),
        );
        owned += own.length;
      }
    }),
    { numRuns: RUNS },
  );
  assert.ok(owned > RUNS);
});

const HOSTS = [["shop.example"], ["SHOP.example"], ["*.example"], [], ["tenant.example", "shop.example"]];
const RESOURCE = "https://shop.example/tools";
const METADATA = "/.well-known/oauth-protected-resource/tools";
const PATHS = [
  { type: "PathPrefix", value: "/" },
  { type: "PathPrefix", value: "/mcp" },
  { type: "PathPrefix", value: "/tools" },
  { type: "Exact", value: "/tools" },
  { type: "Exact", value: METADATA },
  { type: "Exact", value: "/callback" },
  { type: "RegularExpression", value: "/.*" },
];
const LOGIN = { issuer, clientId: "c", redirectUri: "https://shop.example/callback" };
const AUTHENTICATION = { issuer, audiences: ["a"], resourceMetadata: { resource: RESOURCE } };
const ATTACHED: readonly (object | undefined)[] = [
  undefined,
  { backend: { mcp: { authentication: AUTHENTICATION } } },
  { traffic: { oidc: LOGIN } },
  { traffic: { authorization: { rules: ["true and"] } } },
];
const REFERENCES = [
  { name: "web", port: 8080 },
  { name: "web", port: 8080, namespace: "shop" },
  { group: OWN, kind: "Backend", name: "web" },
  { group: OWN, kind: "Backend", name: "web", namespace: "shop" },
  { group: "inference.networking.k8s.io", kind: "InferencePool", name: "web", namespace: "shop" },
  { group: API, kind: "HTTPRoute", name: "web", namespace: "shop" },
];
const FILTERS = [
  undefined,
  { type: "RequestRedirect", requestRedirect: { hostname: "shop.example" } },
  { type: "RequestMirror", requestMirror: { backendRef: { name: "web", port: 8080, namespace: "shop" } } },
  { type: "ExtensionRef", extensionRef: { group: OWN, kind: "GatewayPolicy", name: "web" } },
];
const PARENTS = [
  { name: "edge", namespace: "infra" },
  { name: "edge", namespace: "infra", sectionName: "http" },
  { group: API, kind: "HTTPRoute", name: "web", namespace: "shop" },
];

const foreignRoute = fc.record({
  hostnames: fc.constantFrom(...HOSTS),
  path: fc.constantFrom(...PATHS),
  attached: fc.constantFrom(...ATTACHED),
  backendRef: fc.constantFrom(...REFERENCES),
  filter: fc.constantFrom(...FILTERS),
  parentRefs: fc.uniqueArray(fc.constantFrom(...PARENTS), { minLength: 1 }),
});

const inNamespace = (namespace: string, name: string, day: number, document: object): KubernetesObject =>
  ({
    ...document,
    metadata: { name, namespace, uid: `${namespace} ${name}`, creationTimestamp: `2026-01-0${day}T00:00:00Z` },
  }) as unknown as KubernetesObject;

const route = (spec: object): object => ({ apiVersion: `${API}/v1`, kind: "HTTPRoute", spec });
const policyFor = (name: string, spec: object): object => ({
  apiVersion: `${OWN}/v1alpha1`,
  kind: "GatewayPolicy",
  spec: { targetRefs: [{ group: API, kind: "HTTPRoute", name }], ...spec },
});

const ownRule = (value: string): object => ({
  matches: [{ path: { type: "PathPrefix", value } }],
  backendRefs: [{ group: OWN, kind: "Backend", name: "web" }],
});
const parentRefs = [{ name: "edge", namespace: "infra" }];
const service = { apiVersion: "v1", kind: "Service", spec: { ports: [{ name: "main", port: 8080 }] } };
const mcp = { apiVersion: `${OWN}/v1alpha1`, kind: "Backend", spec: BACKENDS.mcp };

const WORLD = [
  inNamespace("infra", "edge", 1, {
    apiVersion: `${API}/v1`,
    kind: "Gateway",
    spec: {
      gatewayClassName: "g",
      listeners: [{ name: "http", port: 80, protocol: "HTTP", allowedRoutes: { namespaces: { from: "All" } } }],
    },
  }),
  ...["shop", "tenant"].flatMap((namespace) => [
    inNamespace(namespace, "web", 1, service),
    inNamespace(namespace, "web", 1, mcp),
  ]),
  inNamespace("shop", "web", 2, route({ parentRefs, hostnames: ["shop.example"], rules: [ownRule("/tools")] })),
  inNamespace("shop", "web", 2, policyFor("web", { backend: { mcp: { authentication: AUTHENTICATION } } })),
  inNamespace("shop", "pages", 2, route({ parentRefs, hostnames: ["shop.example"], rules: [ownRule("/pages")] })),
  inNamespace("shop", "pages", 2, policyFor("pages", { traffic: { oidc: LOGIN } })),
];

/** What is compiled for the other namespaces, and which of their routes serves a path that only an exact match has. */
function servedOfOthers({ topology, keys }: Compiled): object {
  const { listeners } = topology;
  return {
    keys: keys.filter((key) => key.startsWith("@shop/") || key.startsWith("@infra/")),
    listeners: listeners.map(({ name, port, policies: { effectivePolicy } }) => ({ name, port, effectivePolicy })),
    routes: listeners.flatMap(({ routes }) =>
      routes
        .filter(({ name }) => !name.startsWith("tenant/"))
        .map(({ name, hostnames, except, matches, policies: scope, backends: list }) => ({
          name,
          hostnames,
          except,
          matches,
          policies: [scope.effectivePolicy, scope.access.map(({ kind }) => kind)],
          backends: list.map(({ weight, policies: own }) => [weight, own.effectivePolicy]),
        })),
    ),
    served: listeners.flatMap(({ routes }) => {
      const table = createRouteTable(routes);
      return [METADATA, "/.well-known/oauth-authorization-server/tools", "/callback", "/logout"].map((path) => {
        const { request } = anExchange({ host: "shop.example", path });
        return [path, table.match(request)?.name];
      });
    }),
  };
}

test(`${ROUTE_RUNS * TOGETHER} newer routes of another namespace change no route, extra path, or state`, () => {
  const before = servedOfOthers(compiledFrom(WORLD, false));
  assert.match(JSON.stringify(before), /"\/callback","shop\/pages/);
  fc.assert(
    fc.property(fc.array(foreignRoute, { minLength: TOGETHER, maxLength: TOGETHER }), (attacks) => {
      const documents = attacks.flatMap(({ attached, path, backendRef, filter, ...spec }, i) => {
        const name = `attack-${i}`;
        const rule = { matches: [{ path }], backendRefs: [backendRef], ...(filter ? { filters: [filter] } : {}) };
        return [
          inNamespace("tenant", name, 3, route({ ...spec, rules: [rule] })),
          ...(attached ? [inNamespace("tenant", name, 3, policyFor(name, attached))] : []),
        ];
      });
      assert.deepEqual(servedOfOthers(compiledFrom([...WORLD, ...documents], false)), before);
    }),
    { numRuns: ROUTE_RUNS },
  );
});
