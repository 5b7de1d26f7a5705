/**
 * A document changes nothing outside of its own namespace: whatever it refers to, in whatever form, the Gateways, routes,
 * and policies of other namespaces are translated as if it did not exist.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { createCluster, type KubernetesObject } from "./cluster.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP, POLICY_API_VERSION } from "./documents.ts";
import { groupOfTarget, TARGET_KINDS } from "./policy-spec.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const GATEWAY_API = `${GATEWAY_API_GROUP}/v1`;
const OWN = "tenant";
const OTHERS = ["shop", "infra"];

function object(
  kind: string,
  namespace: string,
  name: string,
  spec: object,
  apiVersion = GATEWAY_API,
): KubernetesObject {
  return { apiVersion, kind, metadata: { name, namespace, labels: { app: name } }, spec } as KubernetesObject;
}

/** The same names in each namespace, so that a reference that is resolved in the wrong one finds something. */
function namespaceObjects(namespace: string): KubernetesObject[] {
  const parentRefs = [{ name: "edge", namespace: "infra" }];
  const backendRefs = [{ name: "web", port: 80 }];
  const own = { group: POLICY_API_GROUP, kind: "Backend", name: "web" };
  return [
    object("Gateway", namespace, "edge", {
      gatewayClassName: "gateway",
      allowedListeners: { namespaces: { from: "Same" } },
      listeners: [
        { name: "http", port: 80, protocol: "HTTP", allowedRoutes: { namespaces: { from: "All" } } },
        { name: "same", port: 81, protocol: "HTTP" },
      ],
    }),
    object("ListenerSet", namespace, "edge", {
      parentRef: { name: "edge" },
      listeners: [{ name: "more", port: 82, protocol: "HTTP" }],
    }),
    object("HTTPRoute", namespace, "web", {
      parentRefs,
      hostnames: [`${namespace}.example`],
      rules: [
        { name: "one", backendRefs },
        { name: "two", matches: [{ path: { value: "/own" } }], backendRefs: [own] },
      ],
    }),
    object("GRPCRoute", namespace, "web", {
      parentRefs,
      hostnames: [`grpc.${namespace}.example`],
      rules: [{ name: "one", backendRefs }],
    }),
    object("Service", namespace, "web", { ports: [{ name: "http", port: 80 }] }, "v1"),
    object("Backend", namespace, "web", { host: "198.51.100.1:80" }, POLICY_API_VERSION),
    object(
      "GatewayPolicy",
      namespace,
      "own",
      {
        targetRefs: [{ group: GATEWAY_API_GROUP, kind: "HTTPRoute", name: "web" }],
        traffic: { requestHeaderModifier: { set: { "x-own": namespace } } },
      },
      POLICY_API_VERSION,
    ),
  ];
}

const WORLD = [OWN, ...OTHERS].flatMap(namespaceObjects);

/** What is served of the other namespaces. */
function translated(objects: readonly KubernetesObject[]): string {
  const result = translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    cluster: createCluster(objects),
    nowMs: 0,
  });
  const { gateways, routes, tcpRoutes, attachments, closures } = result;
  const ofOthers = ({ name }: { readonly name: string }): boolean => !name.includes(`${OWN}/`);
  const shown = {
    gateways: gateways.filter(ofOthers),
    routes: routes.filter(({ route }) => ofOthers(route)),
    tcpRoutes: tcpRoutes.filter(ofOthers),
    attachments: attachments.filter(({ target }) => ofOthers(target)),
    closures: closures.filter(({ target }) => ofOthers(target)),
  };
  // Documents are other objects in each translation.
  return JSON.stringify(shown, (key, value) => (key === "document" ? undefined : value), 1);
}

type Form = (reference: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>;

const seventeenth = (own: Readonly<Record<string, unknown>>) => Array.from({ length: 16 }, () => own);
const HTTP_ROUTE = { group: GATEWAY_API_GROUP, kind: "HTTPRoute", name: "web" };
const FORMS: Readonly<Record<string, Form>> = {
  alone: (reference) => ({ targetRefs: [reference] }),
  "beside an own target": (reference) => ({ targetRefs: [HTTP_ROUTE, reference] }),
  "as the 17th entry": (reference) => ({ targetRefs: [...seventeenth(HTTP_ROUTE), reference] }),
  "instead of the list": (reference) => ({ targetRefs: reference }),
  "as targetRef": (reference) => ({ targetRef: reference }),
  "as targetRef beside an own target": (reference) => ({ targetRefs: [HTTP_ROUTE], targetRef: reference }),
  "in a selector": ({ name: _, ...reference }) => ({
    targetSelectors: [{ ...reference, matchLabels: { app: "web" } }],
  }),
  "in an invalid selector": (reference) => ({ targetSelectors: [{ ...reference, matchLabels: "web" }] }),
  "instead of selectors": (reference) => ({ targetSelectors: reference }),
};
const SECTIONS = [undefined, "http", "one", "none", 80];
const TRAFFIC: Readonly<Record<string, object>> = {
  "a rule": { traffic: { authorization: { rules: ["false"] } } },
  "an invalid rule": { traffic: { authorization: { rules: ["true and"] } } },
  "an unknown field": { traffic: { autorization: {} } },
  "a limit": { traffic: { rateLimit: { local: [{ requests: 1, unit: "Hours" }] } } },
};
/** Spellings of another namespace: in its field, and in the name. */
const SPELLINGS = OTHERS.flatMap((namespace) => [
  { namespace },
  { namespace: ` ${namespace}` },
  { name: `${namespace}/web` },
  { name: `${namespace}/edge` },
  { namespace, name: "edge" },
]);

function* policyCases(): Generator<readonly [string, KubernetesObject]> {
  const kinds = TARGET_KINDS.flatMap((kind) => [kind, kind.toLowerCase()]);
  for (const [form, specOf] of Object.entries(FORMS))
    for (const kind of [...kinds, ""])
      for (const spelling of SPELLINGS)
        for (const sectionName of SECTIONS) {
          const known = TARGET_KINDS.find((one) => one.toLowerCase() === kind.toLowerCase()) ?? "HTTPRoute";
          const name = known === "Gateway" || known === "ListenerSet" ? "edge" : "web";
          const reference = {
            group: groupOfTarget(known),
            kind,
            name,
            ...spelling,
            ...(sectionName === undefined ? {} : { sectionName }),
          };
          for (const [what, traffic] of Object.entries(TRAFFIC))
            yield [
              `GatewayPolicy with ${what}, ${form}: ${JSON.stringify(reference)}`,
              object("GatewayPolicy", OWN, "attack", { ...specOf(reference), ...traffic }, POLICY_API_VERSION),
            ];
          if ("targetSelectors" in specOf(reference)) continue;
          for (const validation of [{ hostname: "a.test", wellKnownCACertificates: "System" }, {}])
            yield [
              `BackendTLSPolicy, ${form}: ${JSON.stringify(reference)}`,
              object("BackendTLSPolicy", OWN, "attack", { ...specOf(reference), validation }),
            ];
        }
}

function* routeCases(): Generator<readonly [string, KubernetesObject]> {
  for (const namespace of OTHERS)
    for (const kind of ["HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"])
      for (const sectionName of ["same", "more", "none", undefined])
        for (const backend of [
          { name: "web", port: 80, namespace },
          { group: POLICY_API_GROUP, kind: "Backend", name: "web", namespace },
          { group: GATEWAY_API_GROUP, kind: "HTTPRoute", name: "web", namespace },
        ])
          for (const filter of [
            undefined,
            { type: "ExtensionRef", extensionRef: { group: "", kind: "", name: "own", namespace } },
          ]) {
            const spec = {
              parentRefs: [
                { name: "edge", namespace, ...(sectionName === undefined ? { port: 81 } : { sectionName }) },
              ],
              rules: [{ backendRefs: [backend], ...(filter ? { filters: [filter] } : {}) }],
            };
            yield [`${kind}: ${JSON.stringify(spec)}`, object(kind, OWN, "attack", spec)];
          }
  for (const namespace of OTHERS)
    for (const port of [80, 81, 82, 83])
      yield [
        `ListenerSet of ${namespace}/edge with port ${port}`,
        object("ListenerSet", OWN, "attack", {
          parentRef: { name: "edge", namespace },
          listeners: [{ name: "http", port, protocol: "HTTP" }],
        }),
      ];
}

const CASES = [...policyCases(), ...routeCases()];
/** `FOREIGN_CASES=all` runs all of them. */
const MOST = process.env.FOREIGN_CASES === "all" ? CASES.length : 3_000;
/** Documents of a tenant that are translated together. */
const TOGETHER = 50;

test(`${MOST} of ${CASES.length} documents change nothing in other namespaces`, () => {
  const expected = translated(WORLD);
  const stride = 7_919; // a prime, so that the cases are of all kinds
  const cases = Array.from({ length: MOST }, (_, i) => CASES[(i * stride) % CASES.length] ?? CASES[0]).flatMap(
    (one, i) => (one ? [[one[0], { ...one[1], metadata: { ...one[1].metadata, name: `attack-${i}` } }] as const] : []),
  );
  for (let i = 0; i < cases.length; i += TOGETHER) {
    const some = cases.slice(i, i + TOGETHER);
    if (translated([...WORLD, ...some.map(([, attack]) => attack)]) === expected) continue;
    for (const [name, attack] of some) assert.equal(translated([...WORLD, attack]), expected, name);
    assert.fail(`together: ${some.map(([name]) => name).join("\n")}`);
  }
});

test("the comparison notices a policy of the same namespace", () => {
  const reference = { group: GATEWAY_API_GROUP, kind: "HTTPRoute", name: "web" };
  const attack = object(
    "GatewayPolicy",
    "shop",
    "change",
    { targetRefs: [reference], ...TRAFFIC["an invalid rule"] },
    POLICY_API_VERSION,
  );
  assert.notEqual(translated([...WORLD, attack]), translated(WORLD));
});
