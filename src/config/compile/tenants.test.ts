/**
 * Two namespaces with the same documents, in generated combinations of policies, backends, and references: nothing that
 * outlives a configuration is acquired without an owner, and no document acquires what belongs to the other namespace.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../base/clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { Owner, PROCESS_RESOURCES } from "../../base/owner.ts";
import type { SharedMemory } from "../../base/shared-memory.ts";
import { createTasks } from "../../base/tasks.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMetrics } from "../../observe/log/metrics.ts";
import { policies } from "../../policies/index.ts";
import type { SignatureDomain, SigningKey } from "../../store/signing-key.ts";
import { noStore } from "../../store/store.ts";
import { createCluster, type KubernetesObject } from "../documents/cluster.ts";
import { partsOf } from "../documents/policy-spec.ts";
import { clusterDocument } from "../documents/snapshot.ts";
import { prepareConfig } from "../prepare.ts";
import { createLimitRegistry } from "./limit-registry.ts";

/** `TENANT_CASES=2000 npm test -- src/config/compile/tenants` is the whole run. */
const RUNS = Number(process.env.TENANT_CASES ?? 25);

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

/** Everything that was acquired, signed, or claimed, by its key. */
function acquiredBy(documents: readonly KubernetesObject[], inFiles: boolean): { keys: string[]; refused: string[] } {
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
  const prepared = prepareConfig(
    inFiles
      ? [
          { file: "gateway.yaml", text: "{}" },
          ...documents.map((one, i) => ({ file: `${i}.yaml`, text: JSON.stringify(one) })),
        ]
      : [{ file: "gateway.yaml", text: "{}" }],
    {
      clock: systemClock,
      environment: {},
      fetcher: { of: () => () => Promise.reject(new Error("nothing is fetched")) },
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
      ...(inFiles ? {} : { cluster: { documents: documents.map(clusterDocument), cluster: createCluster(documents) } }),
    },
  );
  assert.ok(prepared.ok, prepared.ok ? "" : prepared.problems.join("\n"));
  const refused = prepared.resources.flatMap(({ kind, status }) =>
    status.ancestors.flatMap(({ conditions }) =>
      conditions.filter(({ status: is }) => is === "False").map(({ message }) => `${kind}: ${message}`),
    ),
  );
  return { keys, refused };
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
    const { refused } = acquiredBy(documentsOf(one, "a", 80), inFiles);
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
      const alone = both.map(({ documents }) => acquiredBy(documents, a.inFiles).keys);
      const together = acquiredBy(
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
