/** TLSRoutes and TCPRoutes of a cluster: which listeners serve them, and which references are refused. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { certificates } from "../../../test/support/tls/certificates.ts";
import { policies } from "../../policies/index.ts";
import { routeSchema } from "../schema/schema.ts";
import { createCluster, isKubernetesObject, type KubernetesObject } from "./cluster.ts";
import type { ResourceResult, Verdict } from "./documents.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const API = "apiVersion: gateway.networking.k8s.io/v1";
const base64 = (value: string): string => Buffer.from(value).toString("base64");
const PAIR = `---
apiVersion: v1
kind: Secret
metadata: { name: pair, namespace: shop }
data: { tls.crt: ${base64(certificates.server.cert)}, tls.key: ${base64(certificates.server.key)} }
---
apiVersion: v1
kind: Service
metadata: { name: db, namespace: shop }
spec: { ports: [{ name: main, port: 5432 }] }
---
apiVersion: v1
kind: Service
metadata: { name: far, namespace: other }
spec: { ports: [{ port: 5432 }] }
`;
const gateway = (listeners: string): string =>
  `---\n${API}\nkind: Gateway\nmetadata: { name: edge, namespace: shop }\nspec:\n  listeners:\n${listeners.replace(/^/gm, "    - ")}\n`;
const route = (kind: string, spec: string): string =>
  `---\n${API}\nkind: ${kind}\nmetadata: { name: db, namespace: shop }\nspec: { parentRefs: [{ name: edge }], ${spec} }\n`;
const RULES = "rules: [{ backendRefs: [{ name: db, port: 5432 }] }]";
const TCP = "{ name: tcp, port: 5432, protocol: TCP }";
const PASS = '{ name: pass, port: 443, protocol: TLS, hostname: "*.test", tls: { mode: Passthrough } }';
const END = "{ name: end, port: 443, protocol: TLS, hostname: end.test, tls: { certificateRefs: [{ name: pair }] } }";

function translate(yaml: string): ResourceResult {
  const objects: KubernetesObject[] = parseAllDocuments(yaml + PAIR)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
  return translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema,
    cluster: createCluster(objects),
    nowMs: 0,
  });
}

const shown = ({ isTrue, reason }: Verdict): string => `${isTrue} ${reason}`;
const parentOf = ({ routeOutcomes }: ResourceResult): string[] =>
  (routeOutcomes[0]?.parents ?? []).map((one) => `${shown(one.accepted)}, ${shown(one.resolvedRefs)}`);

test("a TCPRoute is a route of the listener's part", () => {
  const result = translate(gateway(TCP) + route("TCPRoute", RULES));
  assert.deepEqual(result.gateways[0]?.tcp, [{ name: "shop/edge:5432#tcp", hostname: undefined, tls: undefined }]);
  const use = {
    reference: { group: "", kind: "Service", namespace: "shop", name: "db" },
    portName: "main",
    policyKinds: new Map(),
  };
  assert.deepEqual(result.tcpRoutes, [
    {
      name: "TCPRoute shop/db",
      part: "shop/edge:5432#tcp",
      hostnames: [],
      backends: [{ name: "shop/db:5432", isService: true, weight: 1, isClosed: false, use }],
    },
  ]);
  assert.deepEqual(parentOf(result), ["true Accepted, true ResolvedRefs"]);
  assert.equal(result.gatewayOutcomes[0]?.listeners[0]?.attachedRoutes, 1);
});

test("listeners of a port pass TLS through or terminate it", () => {
  const { gateways, gatewayOutcomes, tcpRoutes } = translate(
    gateway(`${PASS}\n${END}`) + route("TLSRoute", `hostnames: [a.test, end.test], ${RULES}`),
  );
  const terminates = gateways[0]?.tcp?.map(({ hostname, tls, closed }) => [hostname, tls !== undefined, closed]);
  assert.deepEqual(terminates, [
    ["*.test", false, undefined],
    ["end.test", true, undefined],
  ]);
  assert.deepEqual(
    gatewayOutcomes[0]?.listeners.map(({ supportedKinds, accepted }) => [supportedKinds[0]?.kind, accepted.isTrue]),
    [
      ["TLSRoute", true],
      ["TLSRoute", true],
    ],
  );
  assert.deepEqual(
    tcpRoutes.map(({ part, hostnames }) => [part, hostnames]),
    [
      ["shop/edge:443#pass", ["a.test", "end.test"]],
      ["shop/edge:443#end", ["end.test"]],
    ],
  );
});

test("a listener without a certificate keeps its name and rejects connections", () => {
  const broken = END.replace("name: pair", "name: gone");
  const { gateways, gatewayOutcomes } = translate(gateway(`${PASS}\n${broken}`));
  assert.deepEqual(
    gateways[0]?.tcp?.map(({ hostname, closed }) => [hostname, closed]),
    [
      ["*.test", undefined],
      ["end.test", "listener end is not valid"],
    ],
  );
  assert.equal(gatewayOutcomes[0]?.listeners[1]?.resolvedRefs.reason, "InvalidCertificateRef");
});

const listeners: [name: string, listener: string, kind: string, spec: string, expected: string][] = [
  [
    "a TCPRoute on an HTTP listener",
    "{ name: a, port: 80, protocol: HTTP }",
    "TCPRoute",
    RULES,
    "false NotAllowedByListeners, true ResolvedRefs",
  ],
  ["a TCPRoute on a TLS listener", PASS, "TCPRoute", RULES, "false NotAllowedByListeners, true ResolvedRefs"],
  [
    "a TLSRoute on a TCP listener",
    TCP,
    "TLSRoute",
    `hostnames: [a.test], ${RULES}`,
    "false NotAllowedByListeners, true ResolvedRefs",
  ],
  [
    "a TLSRoute with another name",
    PASS,
    "TLSRoute",
    `hostnames: [a.example], ${RULES}`,
    "false NoMatchingListenerHostname, true ResolvedRefs",
  ],
  ["a TLSRoute", PASS, "TLSRoute", `hostnames: [a.test], ${RULES}`, "true Accepted, true ResolvedRefs"],
  [
    "two rules",
    TCP,
    "TCPRoute",
    RULES.replace("[{", "[{ backendRefs: [] }, {"),
    "false UnsupportedValue, true ResolvedRefs",
  ],
  ["an unknown field", TCP, "TCPRoute", `timeout: 1s, ${RULES}`, "false UnsupportedValue, true ResolvedRefs"],
];
for (const [name, listener, kind, spec, expected] of listeners)
  test(`${name}: ${expected}`, () => {
    const result = translate(gateway(listener) + route(kind, spec));
    assert.deepEqual(parentOf(result), [expected]);
    if (expected.startsWith("false"))
      assert.deepEqual(
        result.tcpRoutes.flatMap(({ backends }) => backends),
        [],
      );
  });

const GRANT = `---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: { name: a, namespace: other }
spec:
  from: [{ group: gateway.networking.k8s.io, kind: TCPRoute, namespace: shop }]
  to: [{ group: "", kind: Service }]
`;
const TLS_POLICY = `---
${API}
kind: BackendTLSPolicy
metadata: { name: db, namespace: shop }
spec:
  targetRefs: [{ group: "", kind: Service, name: db }]
  validation: { hostname: db.test, wellKnownCACertificates: System }
`;
const BACKEND = `---
apiVersion: policy.gateway.internal/v1alpha1
kind: Backend
metadata: { name: web, namespace: shop }
spec: { host: db.example.com:5432 }
`;
const references: [name: string, reference: string, more: string, expected: string][] = [
  ["a missing Service", "name: gone, port: 5432", "", "false BackendNotFound"],
  ["another namespace", "name: far, namespace: other, port: 5432", "", "false RefNotPermitted"],
  ["another namespace with a grant", "name: far, namespace: other, port: 5432", GRANT, "true ResolvedRefs"],
  ["a Backend", "group: policy.gateway.internal, kind: Backend, name: web", BACKEND, "false InvalidKind"],
  ["a Service with a BackendTLSPolicy", "name: db, port: 5432", TLS_POLICY, "false UnsupportedValue"],
];
for (const [name, reference, more, expected] of references)
  test(`${name}: ${expected}, and the backend is ${expected.startsWith("true") ? "open" : "closed"}`, () => {
    const spec = `rules: [{ backendRefs: [{ ${reference}, weight: 2 }] }]`;
    const result = translate(gateway(TCP) + route("TCPRoute", spec) + more);
    assert.deepEqual(
      result.routeOutcomes[0]?.parents.map((one) => shown(one.resolvedRefs)),
      [expected],
    );
    const [backend] = result.tcpRoutes[0]?.backends ?? [];
    assert.deepEqual([backend?.weight, backend?.isClosed], [2, !expected.startsWith("true")]);
  });

const policy = (traffic: string, section = ""): string => `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: p, namespace: shop }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: Gateway, name: edge${section} }]
  traffic: ${traffic}
`;
const PROTECTION = '{ authorization: { rules: ["true"] } }';
const LIMIT = "{ rateLimit: { local: [{ requests: 1, unit: Seconds }] } }";
const HTTP = "{ name: http, port: 80, protocol: HTTP }";
const targets: [name: string, policy: string, closed: string[], attached: string[], accepted: string][] = [
  ["a protection of a Gateway", policy(PROTECTION), ["shop/edge:5432#tcp"], ["shop/edge:80"], "True Valid"],
  [
    "a protection of the listener",
    policy(PROTECTION, ", sectionName: tcp"),
    ["shop/edge:5432#tcp"],
    [],
    "False Invalid",
  ],
  ["a limit of a Gateway", policy(LIMIT), [], ["shop/edge:80"], "True Valid"],
  ["a limit of the listener", policy(LIMIT, ", sectionName: tcp"), [], [], "False Invalid"],
  [
    "an invalid protection of a Gateway",
    policy("{ authorization: {} }"),
    ["shop/edge:80", "shop/edge:5432#tcp"],
    [],
    "False Invalid",
  ],
];
for (const [name, document, closed, attached, accepted] of targets)
  test(`${name} closes ${closed.join(" and ") || "nothing"}`, () => {
    const result = translate(gateway(`${HTTP}\n${TCP}`) + document);
    assert.deepEqual(
      result.closures.map(({ target }) => target.name),
      closed,
    );
    assert.deepEqual(
      result.attachments.map(({ target }) => target.name),
      attached,
    );
    const condition = result.policies[0]?.status.ancestors[0]?.conditions[0];
    assert.equal(`${condition?.status} ${condition?.reason}`, accepted);
    assert.match(String(condition?.message), /TLS and TCP|authorization/);
  });
