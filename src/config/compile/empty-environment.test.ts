/**
 * Every policy and every backend, compiled as a document of a cluster with an environment that has no machine and
 * connects to nothing, and every kind of document with planted texts in its fields: nothing reaches a file, a process, a
 * socket, a name server, a variable, or a credential of this machine. The policies, backends, and their fields are those
 * of the registries and their schemas, so a new one is covered.
 */
import assert from "node:assert/strict";
import childProcess from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import workerThreads from "node:worker_threads";
import { z } from "zod";
import { testEnv } from "../../../test/support/exchange.ts";
import { backends } from "../../backends/index.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { finish, nextTurn } from "../../base/sliced-work.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { getLocalUse } from "../../core/schema.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { KINDS } from "../../kubernetes/cluster-cache.ts";
import { policies } from "../../policies/index.ts";
import { noSigningKey } from "../../store/signing-key.ts";
import { noStore } from "../../store/store.ts";
import { createCluster, type KubernetesObject } from "../documents/cluster.ts";
import { clusterDocument } from "../documents/snapshot.ts";
import { prepareConfig } from "../prepare.ts";
import { unwrap } from "../schema/schema-walk.ts";
import { createResourceRegistry } from "./resource-registry.ts";

const FILE = "/planted/by/the/test";
/** One of them is valid for almost every field. */
const TEXTS = [
  FILE,
  "unix:/planted/by/the/test.sock",
  "http://127.0.0.1:9/planted",
  "https://planted.example/path",
  "127.0.0.1:9",
  "planted.example:443",
  "planted",
  "true",
  "1m",
  "10",
  "planted:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
  "0123456789abcdef0123456789abcdef",
];
const MAX_DEPTH = 9;

type Steps = readonly (string | number)[];

/** Returns a value for the schema which has `field` at the rest of the path, or undefined if there is none. */
function* valuesOf(schema: z.ZodType, path: Steps, depth = 0): Generator<unknown> {
  if (depth > MAX_DEPTH) return;
  const [step, ...rest] = path;
  for (const one of unwrap(schema)) {
    if (one instanceof z.ZodObject) {
      const shape = Object.entries(one.shape) as [string, z.ZodType][];
      const wanted = shape.filter(([name, field]) => name === step || !field.safeParse(undefined).success);
      const parts = wanted.map(
        ([name, field]) => [name, first(valuesOf(field, name === step ? rest : [], depth + 1))] as const,
      );
      yield Object.fromEntries(parts.filter(([, value]) => value !== undefined));
    } else if (one instanceof z.ZodArray) yield [first(valuesOf(one.element as z.ZodType, rest, depth + 1))];
    else if (one instanceof z.ZodRecord)
      yield { planted: first(valuesOf(one.valueType as z.ZodType, rest, depth + 1)) };
    else if (one instanceof z.ZodEnum) yield* one.options;
    else if (one instanceof z.ZodLiteral) yield* one.values;
    else if (one instanceof z.ZodBoolean) yield true;
    else if (one instanceof z.ZodNumber) yield* [1, 1000];
    else yield* TEXTS.filter((text) => one.safeParse(text).success);
  }
}

function first(values: Generator<unknown>): unknown {
  const found = values.next();
  return found.done ? undefined : found.value;
}

function* pathsOf(schema: z.ZodType, path: Steps = [], depth = 0): Generator<{ path: Steps; schema: z.ZodType }> {
  if (depth > MAX_DEPTH) return;
  yield { path, schema };
  for (const one of unwrap(schema)) {
    if (one instanceof z.ZodObject)
      for (const [name, field] of Object.entries(one.shape))
        yield* pathsOf(field as z.ZodType, [...path, name], depth + 1);
    else if (one instanceof z.ZodArray) yield* pathsOf(one.element as z.ZodType, [...path, 0], depth + 1);
    else if (one instanceof z.ZodRecord) yield* pathsOf(one.valueType as z.ZodType, [...path, "planted"], depth + 1);
  }
}

function replaced(value: unknown, [step, ...rest]: Steps, planted: unknown): unknown {
  if (step === undefined) return planted;
  if (Array.isArray(value)) return [replaced(value[0], rest, planted)];
  return {
    ...(value as object),
    [step]: replaced((value as Record<string, unknown> | undefined)?.[step], rest, planted),
  };
}

interface Case {
  readonly name: string;
  readonly isLocal: boolean;
  compile(env: BackendEnv): unknown;
}

function* casesOf(
  kind: string,
  definition: { readonly schema: z.ZodType; compile(config: never, env: BackendEnv): unknown },
): Generator<Case> {
  const seen = new Set<string>();
  for (const { path, schema } of pathsOf(definition.schema)) {
    const marked = [schema, ...unwrap(schema)];
    const local = marked.map(getLocalUse).find((use) => use !== undefined);
    const isText = unwrap(schema).some((one) => one._zod.def.type === "string");
    if (!local && !isText) continue;
    const base = first(valuesOf(definition.schema, path));
    const planted = [...TEXTS, {}, { file: FILE }, { cmd: FILE }];
    for (const value of planted) {
      const config = definition.schema.safeParse(replaced(base, path, value));
      if (!config.success) continue;
      const key = JSON.stringify([path, value]);
      if (seen.has(key)) continue;
      seen.add(key);
      yield {
        name: `${kind} ${path.join(".")} = ${JSON.stringify(value)}`,
        isLocal: local !== undefined && (local as { isLocal?(value: unknown): boolean }).isLocal?.(value) !== false,
        compile: (env) => definition.compile(config.data as never, env),
      };
    }
  }
}

const CASES = [...policies, ...backends.map((one) => ({ ...one, kind: one.key }))].flatMap((definition) => [
  ...casesOf(definition.kind, definition as never),
]);

const reached: string[] = [];

/** The functions of Node that reach something outside of the process. Pure ones are those that a name excludes. */
const WAYS_OUT: readonly (readonly [module: object, what: string, names: (name: string) => boolean])[] = [
  [fs, "fs", (name) => /^[a-z]/.test(name) && name !== "promises"],
  [fs.promises, "fs.promises", (name) => name !== "constants"],
  [childProcess, "child_process", (name) => /^(spawn|fork|exec)/.test(name)],
  [net, "net", (name) => /^(connect|create(Connection|Server))$/.test(name)],
  [net.Socket.prototype, "net.Socket", (name) => name === "connect"],
  [tls, "tls", (name) => name === "connect"],
  [http, "http", (name) => /^(get|request)$/.test(name)],
  [https, "https", (name) => /^(get|request)$/.test(name)],
  [http2, "http2", (name) => name === "connect"],
  [dns, "dns", (name) => /^(lookup|resolve|reverse)/.test(name)],
  [dns.promises, "dns.promises", (name) => /^(lookup|resolve|reverse)/.test(name)],
  [dgram, "dgram", (name) => name === "createSocket"],
  [workerThreads, "worker_threads", (name) => name === "Worker"],
  [globalThis, "global", (name) => /^(fetch|WebSocket|EventSource)$/.test(name)],
];
/** Libraries that are loaded on demand read their own settings. */
const LIBRARY_VARIABLES = /^(NODE|GRPC|LOG_(TOKENS|STREAM)|WATCH_REPORT_DEPENDENCIES)/;

/** Each call is noted and refused until the end of the test. */
function closeWaysOut(t: TestContext): void {
  const restores: (() => void)[] = [];
  const replace = (module: object, name: string, value: unknown): void => {
    const before = Object.getOwnPropertyDescriptor(module, name);
    Object.defineProperty(module, name, { value, configurable: true, writable: true, enumerable: true });
    restores.push(() => (before ? Object.defineProperty(module, name, before) : Reflect.deleteProperty(module, name)));
  };
  for (const [module, what, isWayOut] of WAYS_OUT)
    for (const name of Object.getOwnPropertyNames(module).filter(isWayOut)) {
      const original: unknown = Reflect.get(module, name);
      if (typeof original !== "function") continue;
      // Not an arrow function, because some are constructors.
      replace(module, name, function refused(this: unknown, ...args: readonly unknown[]): unknown {
        // The program loads files of its own on demand.
        if (what.startsWith("fs") && String(args[0]).includes(process.cwd())) return original.apply(this, args);
        if (what.startsWith("fs") && typeof args[0] === "number") return original.apply(this, args);
        reached.push(`${what}.${name} ${JSON.stringify(args[0])}`);
        throw Object.assign(new Error(`the test refuses ${what}.${name}`), { code: "EACCES" });
      });
    }
  const variables = process.env;
  replace(
    process,
    "env",
    new Proxy(variables, {
      get(target, name, receiver) {
        if (typeof name === "string" && !LIBRARY_VARIABLES.test(name)) reached.push(`the variable ${name}`);
        return Reflect.get(target, name, receiver);
      },
    }),
  );
  syncBuiltinESMExports();
  t.after(() => {
    for (const restore of restores.reverse()) restore();
    syncBuiltinESMExports();
  });
}

/** What is started without being awaited gets its turns. */
async function requireNothingReached(name: string): Promise<void> {
  for (let i = 0; i < 3; i++) await nextTurn();
  assert.deepEqual(reached, [], name);
}

/** Nothing runs later, because no time passes. */
const clock: Clock = {
  now: () => systemClock.now(),
  monotonicMs: () => systemClock.monotonicMs(),
  after: () => ({ cancel: () => undefined }),
  every: () => ({ cancel: () => undefined }),
};

function env(): BackendEnv {
  return {
    ...testEnv,
    clock,
    machine: undefined,
    egress: EgressGuard.for("document").closed(),
    fetch: () => Promise.reject(new Error("the test refuses fetch")),
    readFile: (name) => {
      throw new Error(`${name} was not granted`);
    },
    name: "test",
    trustedHosts: [],
    requiresCredential: false,
    tls: undefined,
  };
}

test(`${CASES.length} configurations of all kinds reach nothing of this machine`, async (t) => {
  closeWaysOut(t);
  reached.length = 0;
  const compiled = new Set<string>();
  for (const { name, isLocal, compile } of CASES) {
    let failure: Error | undefined;
    try {
      compile(env());
    } catch (error) {
      failure = error as Error;
    }
    assert.deepEqual(reached, [], `${name}: ${failure?.message ?? ""}`);
    if (isLocal && failure === undefined) compiled.add(name);
  }
  await requireNothingReached("after they were compiled");
  assert.deepEqual([...compiled], []);
});

test("each way out is noticed", async (t) => {
  closeWaysOut(t);
  const ways: Readonly<Record<string, () => unknown>> = {
    readFile: () => fs.readFileSync(FILE),
    promises: () => fs.promises.readFile(FILE),
    spawn: () => childProcess.spawn(FILE),
    socket: () => new net.Socket().connect(9, "127.0.0.1"),
    lookup: () => dns.lookup("planted.example", () => undefined),
    request: () => http.request("http://127.0.0.1:9/"),
    thread: () => new workerThreads.Worker(FILE),
    fetch: () => fetch("http://127.0.0.1:9/"),
  };
  for (const [name, use] of Object.entries(ways)) {
    reached.length = 0;
    assert.throws(use, { code: "EACCES" }, name);
    assert.equal(reached.length, 1, name);
  }
  reached.length = 0;
  assert.equal(process.env.PLANTED, undefined);
  assert.deepEqual(reached, ["the variable PLANTED"]);
  reached.length = 0;
});

/** A document of each kind. */
const GATEWAY_API = "gateway.networking.k8s.io/v1";
const OWN_API = "policy.gateway.internal/v1alpha1";
const HTTP_RULE = {
  name: "rule",
  matches: [{ path: { type: "PathPrefix", value: "/" }, headers: [{ name: "a", value: "b" }] }],
  filters: [
    { type: "RequestHeaderModifier", requestHeaderModifier: { set: [{ name: "a", value: "b" }] } },
    {
      type: "URLRewrite",
      urlRewrite: { hostname: "a.example", path: { type: "ReplaceFullPath", replaceFullPath: "/" } },
    },
    { type: "RequestMirror", requestMirror: { backendRef: { name: "web", port: 80 } } },
  ],
  backendRefs: [
    { name: "web", port: 80 },
    { group: "policy.gateway.internal", kind: "Backend", name: "web" },
    { group: "inference.networking.k8s.io", kind: "InferencePool", name: "web" },
  ],
  sessionPersistence: { sessionName: "s" },
};
const parentRefs = [{ name: "web", sectionName: "http" }];
const SPECS: readonly (readonly [apiVersion: string, kind: string, content: object])[] = [
  [
    GATEWAY_API,
    "Gateway",
    {
      spec: {
        gatewayClassName: "gateway",
        listeners: [
          { name: "http", port: 80, protocol: "HTTP", hostname: "a.example" },
          {
            name: "https",
            port: 443,
            protocol: "HTTPS",
            tls: { mode: "Terminate", certificateRefs: [{ name: "web" }] },
          },
          { name: "tls", port: 444, protocol: "TLS", tls: { mode: "Passthrough" } },
          { name: "tcp", port: 445, protocol: "TCP" },
        ],
        tls: {
          frontend: { default: { validation: { caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "web" }] } } },
          backend: { clientCertificateRef: { name: "web" } },
        },
        infrastructure: { parametersRef: { group: "policy.gateway.internal", kind: "GatewayParameters", name: "web" } },
        allowedListeners: { namespaces: { from: "Same" } },
      },
    },
  ],
  [
    GATEWAY_API,
    "ListenerSet",
    { spec: { parentRef: { name: "web" }, listeners: [{ name: "more", port: 81, protocol: "HTTP" }] } },
  ],
  [GATEWAY_API, "HTTPRoute", { spec: { parentRefs, hostnames: ["a.example"], rules: [HTTP_RULE] } }],
  [
    GATEWAY_API,
    "GRPCRoute",
    {
      spec: {
        parentRefs,
        rules: [{ matches: [{ method: { service: "a" } }], backendRefs: [{ name: "web", port: 80 }] }],
      },
    },
  ],
  [
    "gateway.networking.k8s.io/v1alpha2",
    "TCPRoute",
    {
      spec: {
        parentRefs: [{ name: "web", sectionName: "tcp" }],
        rules: [{ backendRefs: [{ name: "web", port: 80 }] }],
      },
    },
  ],
  [
    GATEWAY_API,
    "TLSRoute",
    {
      spec: {
        parentRefs: [{ name: "web", sectionName: "tls" }],
        hostnames: ["a.example"],
        rules: [{ backendRefs: [{ name: "web", port: 80 }] }],
      },
    },
  ],
  [
    GATEWAY_API,
    "BackendTLSPolicy",
    {
      spec: {
        targetRefs: [{ group: "", kind: "Service", name: "web", sectionName: "main" }],
        validation: { hostname: "a.example", caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "web" }] },
      },
    },
  ],
  [
    GATEWAY_API,
    "ReferenceGrant",
    {
      spec: { from: [{ group: GATEWAY_API, kind: "HTTPRoute", namespace: "b" }], to: [{ group: "", kind: "Service" }] },
    },
  ],
  [
    "inference.networking.k8s.io/v1",
    "InferencePool",
    {
      spec: {
        selector: { matchLabels: { a: "b" } },
        targetPorts: [{ number: 80 }],
        endpointPickerRef: { name: "web", port: { number: 80 } },
      },
    },
  ],
  [
    OWN_API,
    "GatewayPolicy",
    {
      spec: {
        targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web" }],
        traffic: { jwtAuthentication: { issuer: "https://a.example", audiences: ["a"] } },
      },
    },
  ],
  [OWN_API, "Backend", { spec: { host: "b.example:80" } }],
  [OWN_API, "GatewayParameters", { spec: { deployment: { replicas: 1 } } }],
  ["v1", "Service", { spec: { type: "ClusterIP", ports: [{ name: "main", port: 80 }] } }],
  ["v1", "Secret", { type: "kubernetes.io/tls", data: { "tls.crt": "cGxhbnRlZA==", "tls.key": "cGxhbnRlZA==" } }],
  ["v1", "ConfigMap", { data: { "ca.crt": "planted" } }],
  ["v1", "Namespace", {}],
  ["v1", "Pod", { data: { labels: { a: "b" }, ip: "192.0.2.1" } }],
  [GATEWAY_API, "GatewayClass", { spec: { controllerName: "policy.gateway.internal/gateway" } }],
  ["discovery.k8s.io/v1", "EndpointSlice", { endpoints: [{ addresses: ["192.0.2.1"] }], ports: [{ port: 80 }] }],
];
const DOCUMENTS = SPECS.map(
  ([apiVersion, kind, content]) =>
    ({ apiVersion, kind, metadata: { name: "web", namespace: "a" }, ...content }) as KubernetesObject,
);

/** The document with another text in each of its places. */
function* planted(value: unknown, text: string): Generator<unknown> {
  if (typeof value === "string") yield text;
  else if (typeof value === "object" && value !== null)
    for (const [key, inner] of Object.entries(value))
      for (const other of planted(inner, text))
        yield Array.isArray(value) ? value.with(Number(key), other) : { ...value, [key]: other };
}

const PLANTED_DOCUMENTS = DOCUMENTS.flatMap((document, i) =>
  [FILE, "unix:/planted/by/the/test.sock", "http://127.0.0.1:9/planted"].flatMap((text) =>
    [...planted(document, text)].map((other) => DOCUMENTS.with(i, other as KubernetesObject)),
  ),
);

test(`${PLANTED_DOCUMENTS.length} documents of all kinds reach nothing of this machine`, async (t) => {
  assert.deepEqual(
    KINDS.filter(({ kind }) => !DOCUMENTS.some((document) => document.kind === kind)),
    [],
  );
  closeWaysOut(t);
  reached.length = 0;
  for (const [i, documents] of PLANTED_DOCUMENTS.entries()) {
    const generation = createResourceRegistry(() => undefined).begin();
    const prepared = finish(
      prepareConfig([{ file: "gateway.yaml", text: "{}" }], {
        clock,
        environment: {},
        fetcher: { of: () => () => Promise.reject(new Error("the test refuses fetch")) },
        logger: testEnv.logger,
        tasks: testEnv.tasks,
        metrics: testEnv.metrics,
        limits: testEnv.limits,
        memory: testEnv.memory,
        store: noStore,
        signingKey: noSigningKey,
        redaction: undefined,
        generation,
        egress: (author) => EgressGuard.for(author).closed(),
        fileRead: (path) => void reached.push(`the file ${path}`),
        cluster: { documents: documents.map(clusterDocument), cluster: createCluster(documents) },
      }),
    );
    assert.ok(prepared.ok);
    assert.deepEqual(reached, [], JSON.stringify(documents.find((one, at) => one !== DOCUMENTS[at])) + i);
    generation.discard();
  }
  await requireNothingReached("after they were compiled");
});
