import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments, stringify } from "yaml";
import { certificates } from "../../../test/support/tls/certificates.ts";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { isTlsPolicyConflicted, readTlsPolicy } from "./backend-document.ts";
import { createCluster, isKubernetesObject, type KubernetesObject } from "./cluster.ts";
import { type ClusterDocument, clusterDocument, createSnapshot, recordingCluster } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const BASE = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: shop }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP }] }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ name: one, port: 443 }, { name: two, port: 8443 }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: web, namespace: shop }
spec:
  parentRefs: [{ name: edge }]
  rules: [{ backendRefs: [{ name: web, port: 443 }, { name: web, port: 8443 }] }]
---
${stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "roots", namespace: "shop" }, data: { "ca.crt": certificates.root } })}
---
${stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "bad", namespace: "shop" }, data: { "ca.crt": "no certificate" } })}
---
${stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "theirs", namespace: "other" }, data: { "ca.crt": certificates.root } })}
`;

const GOOD = "hostname: a.test, caCertificateRefs: [{ group: '', kind: ConfigMap, name: roots }]";

function policy(
  name: string,
  validation: string,
  target = "{ group: '', kind: Service, name: web }",
  created = 1,
): string {
  return `
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: { name: ${name}, namespace: shop, creationTimestamp: "2026-01-0${created}T00:00:00Z" }
spec: { targetRefs: [${target}], validation: { ${validation} } }
`;
}

function objectsOf(yaml: string): KubernetesObject[] {
  return parseAllDocuments(yaml)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
}

function translate(objects: readonly KubernetesObject[]) {
  const documents = objects.map(clusterDocument);
  const whole = createCluster(objects);
  const recording = recordingCluster(whole);
  const result = translateResources({
    documents,
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    cluster: whole,
    recorded: () => recording.cluster,
    nowMs: 0,
  });
  const route = documents.find(({ value }) => (value as KubernetesObject).kind === "HTTPRoute") as ClusterDocument;
  return { result, route, used: recording.used() };
}

const backendsOf = ({ result }: ReturnType<typeof translate>) => result.routes[0]?.route.backends;
const tlsOf = (found: ReturnType<typeof translate>) =>
  backendsOf(found)?.map((backend) => (backend.policies as { backendTLS?: object } | undefined)?.backendTLS);

test("requests to the Service use TLS with the certificates of the ConfigMap", () => {
  const found = translate(objectsOf(BASE + policy("a", GOOD)));
  const root = "secretRef:BackendTLSPolicy shop/a";
  assert.deepEqual(tlsOf(found), Array(2).fill({ hostname: "a.test", root }));
  assert.equal(found.route.confined.readText(root), certificates.root);
  assert.equal(found.result.routes[0]?.closedBackends, undefined);
  // A data plane makes the same of what it gets.
  const kinds = found.used.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  assert.ok(kinds.includes("BackendTLSPolicy a") && kinds.includes("ConfigMap roots"), kinds.join());
  assert.ok(!kinds.includes("ConfigMap theirs"));
  const { documents } = createSnapshot("shop/edge", [...objectsOf(BASE).slice(0, 3), ...found.used], {});
  assert.deepEqual(tlsOf(translate(documents)), tlsOf(found));
});

test("a policy for a port counts before one for all, the older before the younger", () => {
  const port = "{ group: '', kind: Service, name: web, sectionName: two }";
  const objects = objectsOf(
    BASE +
      policy("old", GOOD, undefined, 2) +
      policy("young", GOOD.replace("a.test", "young.test"), undefined, 3) +
      policy("port", GOOD.replace("a.test", "port.test"), port, 9),
  );
  const hostnames = tlsOf(translate(objects))?.map((tls) => (tls as { hostname?: string }).hostname);
  assert.deepEqual(hostnames, ["a.test", "port.test"]);
  const cluster = createCluster(objects);
  const conflicted = cluster.objects("BackendTLSPolicy").filter((one) => isTlsPolicyConflicted(one, cluster));
  assert.deepEqual(
    conflicted.map(({ metadata }) => metadata.name),
    ["young"],
  );
});

const INVALID: Record<string, [validation: string, accepted: string, resolved: string]> = {
  "a ConfigMap that is not there": [
    "hostname: a.test, caCertificateRefs: [{ group: '', kind: ConfigMap, name: gone }]",
    "NoValidCACertificate",
    "InvalidCACertificateRef",
  ],
  "a ConfigMap of another namespace": [
    "hostname: a.test, caCertificateRefs: [{ group: '', kind: ConfigMap, name: theirs, namespace: other }]",
    "NoValidCACertificate",
    "InvalidCACertificateRef",
  ],
  "a text that is no certificate": [
    "hostname: a.test, caCertificateRefs: [{ group: '', kind: ConfigMap, name: bad }]",
    "NoValidCACertificate",
    "InvalidCACertificateRef",
  ],
  "another kind": [
    "hostname: a.test, caCertificateRefs: [{ group: '', kind: Secret, name: roots }]",
    "NoValidCACertificate",
    "InvalidKind",
  ],
  "no certificates at all": ["hostname: a.test", "Invalid", "ResolvedRefs"],
  "no hostname": ["wellKnownCACertificates: System", "Invalid", "ResolvedRefs"],
  "a kind of name that nobody knows": [
    `${GOOD}, subjectAltNames: [{ type: Email, hostname: a.test }]`,
    "Invalid",
    "ResolvedRefs",
  ],
};

for (const [what, [validation, accepted, resolved]] of Object.entries(INVALID)) {
  test(`a policy with ${what} closes its Service`, () => {
    const objects = objectsOf(BASE + policy("a", validation));
    const found = translate(objects);
    assert.deepEqual([...(found.result.routes[0]?.closedBackends?.keys() ?? [])], [0, 1]);
    // The route itself is right.
    assert.equal(found.result.routeOutcomes[0]?.parents[0]?.resolvedRefs.isTrue, true);
    const cluster = createCluster(objects);
    const read = readTlsPolicy(cluster.objects("BackendTLSPolicy")[0] as KubernetesObject, cluster);
    assert.deepEqual([read.accepted.reason, read.resolvedRefs.reason], [accepted, resolved]);
  });
}

test("certificates of the system, and names that the certificate must have", () => {
  const names = "subjectAltNames: [{ type: Hostname, hostname: b.test }, { type: URI, uri: 'spiffe://c/d' }]";
  const found = translate(objectsOf(BASE + policy("a", `hostname: a.test, wellKnownCACertificates: System, ${names}`)));
  assert.deepEqual(tlsOf(found)?.[0], { hostname: "a.test", subjectAltNames: ["b.test", "spiffe://c/d"] });
});

test("nothing is mirrored to a Service with TLS without it", () => {
  const mirror =
    "filters: [{ type: RequestMirror, requestMirror: { backendRef: { name: web, port: 443 } } }], backendRefs:";
  const found = translate(objectsOf(BASE.replace("backendRefs:", mirror) + policy("a", GOOD)));
  assert.equal(found.result.routes[0]?.route.policies, undefined);
  assert.match(found.result.problems.map((one) => one.toLine()).join(), /cannot be mirrored over TLS/);
});

const reference = (written: string): string =>
  BASE.replace(
    "gatewayClassName: gateway",
    `gatewayClassName: gateway, tls: { backend: { clientCertificateRef: ${written} } }`,
  );
const secret = (namespace: string, cert: string, key: string): string => `
---
${stringify({ apiVersion: "v1", kind: "Secret", metadata: { name: "identity", namespace }, data: { "tls.crt": Buffer.from(cert).toString("base64"), "tls.key": Buffer.from(key).toString("base64") } })}
`;
const IDENTITY = secret("shop", certificates.client.cert, certificates.client.key);

test("a Gateway presents its client certificate to Services with a BackendTLSPolicy only", () => {
  const port = "{ group: '', kind: Service, name: web, sectionName: two }";
  const found = translate(objectsOf(reference("{ name: identity }") + IDENTITY + policy("a", GOOD, port)));
  const [plain, encrypted] = (tlsOf(found) as ({ cert?: string; key?: string } | undefined)[] | undefined) ?? [];
  assert.equal(plain, undefined);
  assert.equal(found.route.confined.readText(encrypted?.cert ?? ""), certificates.client.cert);
  assert.equal(found.route.confined.readText(encrypted?.key ?? ""), certificates.client.key);
  assert.equal(found.result.gatewayOutcomes[0]?.resolvedRefs?.isTrue, true);
  assert.ok(found.used.some(({ kind, metadata }) => kind === "Secret" && metadata.name === "identity"));
});

test("each Gateway presents its own client certificate", () => {
  const second = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: west, namespace: shop }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP }] }
`;
  const base = reference("{ name: identity }").replace(
    "parentRefs: [{ name: edge }]",
    "parentRefs: [{ name: edge }, { name: west }]",
  );
  const { result } = translate(objectsOf(base + second + IDENTITY + policy("a", GOOD)));
  const presented = result.routes.map(({ route }) => {
    const tls = route.backends?.map(({ policies }) => (policies as { backendTLS: object }).backendTLS);
    return [route.gateways, tls?.map((settings) => "cert" in settings)];
  });
  assert.deepEqual(presented, [
    [["shop/edge:80"], [true, true]],
    [["shop/west:80"], [false, false]],
  ]);
});

const UNUSABLE: Record<string, [reference: string, secret: string, reason: string]> = {
  "a missing Secret": ["{ name: gone }", IDENTITY, "InvalidClientCertificateRef"],
  "another group": ["{ group: example.com, kind: Secret, name: identity }", IDENTITY, "InvalidClientCertificateRef"],
  "another kind": ["{ kind: ConfigMap, name: identity }", IDENTITY, "InvalidClientCertificateRef"],
  "a Secret without a certificate": [
    "{ name: identity }",
    secret("shop", "none", "none"),
    "InvalidClientCertificateRef",
  ],
  "a Secret of another namespace": [
    "{ name: identity, namespace: other }",
    secret("other", certificates.client.cert, certificates.client.key),
    "RefNotPermitted",
  ],
};
for (const [what, [written, data, reason]] of Object.entries(UNUSABLE))
  test(`requests to Services with a BackendTLSPolicy are rejected if the client certificate is ${what}`, () => {
    const port = "{ group: '', kind: Service, name: web, sectionName: two }";
    const found = translate(objectsOf(reference(written) + data + policy("a", GOOD, port)));
    assert.deepEqual([...(found.result.routes[0]?.closedBackends?.keys() ?? [])], [1]);
    const [gateway] = found.result.gatewayOutcomes;
    assert.deepEqual([gateway?.accepted.isTrue, gateway?.resolvedRefs?.reason], [true, reason]);
  });
