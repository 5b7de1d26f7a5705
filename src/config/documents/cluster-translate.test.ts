import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { certificates } from "../../../test/support/tls/certificates.ts";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { createCluster, isKubernetesObject, type KubernetesObject } from "./cluster.ts";
import type { ResourceResult, Verdict } from "./documents.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const GATEWAY = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: infra }
spec:
  gatewayClassName: gateway
  listeners:
    - { name: http, port: 80, protocol: HTTP, allowedRoutes: { namespaces: { from: All } } }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ name: main, port: 8080 }] }
`;

const ROUTE = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: web, namespace: shop }
spec:
  parentRefs: [{ name: edge, namespace: infra }]
  rules: [{ backendRefs: [{ name: web, port: 8080 }] }]
`;

function objectsOf(yaml: string): KubernetesObject[] {
  return parseAllDocuments(yaml)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
}

function translate(yaml: string): ResourceResult {
  const objects = objectsOf(yaml);
  return translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [{ name: "edge", policyKinds: [], port: 79 }], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    cluster: createCluster(objects),
    nowMs: 0,
  });
}

const shown = ({ isTrue, reason }: Verdict): string => `${isTrue} ${reason}`;

test("a route goes to a Service of its namespace", () => {
  const { gateways, routes, routeOutcomes, gatewayOutcomes } = translate(GATEWAY + ROUTE);
  assert.deepEqual(
    gateways.map(({ name, port }) => [name, port]),
    [["infra/edge:80", 80]],
  );
  assert.deepEqual(routes[0]?.route.backends, [{ service: { name: "shop/web:8080" } }]);
  assert.deepEqual(
    routeOutcomes[0]?.parents.map((one) => [shown(one.accepted), shown(one.resolvedRefs)]),
    [["true Accepted", "true ResolvedRefs"]],
  );
  assert.equal(gatewayOutcomes[0]?.listeners[0]?.attachedRoutes, 1);
});

const REFERENCES: Record<string, [backendRef: string, more: string, verdict: string]> = {
  "a Service that is not there": ["{ name: gone, port: 1 }", "", "false BackendNotFound"],
  "a port that it does not have": ["{ name: web, port: 1 }", "", "false BackendNotFound"],
  "another kind": ["{ name: web, kind: Pod, port: 8080 }", "", "false InvalidKind"],
  "another namespace": ["{ name: web, namespace: infra, port: 8080 }", "", "false RefNotPermitted"],
  "an external name": [
    "{ name: out, port: 80 }",
    "---\napiVersion: v1\nkind: Service\nmetadata: { name: out, namespace: shop }\nspec: { type: ExternalName, externalName: a.b, ports: [{ port: 80 }] }",
    "false UnsupportedProtocol",
  ],
  "a grant for another kind of referrer": [
    "{ name: web, namespace: infra, port: 8080 }",
    "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: { name: g, namespace: infra }\nspec: { from: [{ group: gateway.networking.k8s.io, kind: Gateway, namespace: shop }], to: [{ group: '', kind: Service }] }",
    "false RefNotPermitted",
  ],
  "a grant for another name": [
    "{ name: web, namespace: infra, port: 8080 }",
    "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: { name: g, namespace: infra }\nspec: { from: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop }], to: [{ group: '', kind: Service, name: other }] }",
    "false RefNotPermitted",
  ],
};

for (const [what, [reference, more, verdict]] of Object.entries(REFERENCES)) {
  test(`a reference to ${what} answers its share with 500: ${verdict}`, () => {
    const route = ROUTE.replace("[{ name: web, port: 8080 }]", `[{ name: web, port: 8080 }, ${reference}]`);
    const { routes, routeOutcomes } = translate(`${GATEWAY}${route}${more}`);
    assert.equal(shown(routeOutcomes[0]?.parents[0]?.resolvedRefs as Verdict), verdict);
    assert.deepEqual([...(routes[0]?.closedBackends?.keys() ?? [])], [1]);
    assert.equal(routes[0]?.route.backends?.length, 2, "the share of the others stays as it was");
  });
}

const ADMISSIONS: Record<string, [namespaces: string, verdict: string]> = {
  "of the same namespace only": ["{ from: Same }", "false NotAllowedByListeners"],
  "of namespaces with a label": ["{ from: Selector, selector: { matchLabels: { team: a } } }", "true Accepted"],
  "of namespaces with another label": [
    "{ from: Selector, selector: { matchExpressions: [{ key: team, operator: NotIn, values: [a] }] } }",
    "false NotAllowedByListeners",
  ],
  "of none": ["{ from: None }", "false NotAllowedByListeners"],
};

for (const [what, [namespaces, verdict]] of Object.entries(ADMISSIONS)) {
  test(`a listener for routes ${what}: ${verdict}`, () => {
    const gateway = GATEWAY.replace("{ from: All }", namespaces);
    const { routeOutcomes } = translate(
      `${gateway}---\napiVersion: v1\nkind: Namespace\nmetadata: { name: shop, labels: { team: a } }\n${ROUTE}`,
    );
    assert.equal(shown(routeOutcomes[0]?.parents[0]?.accepted as Verdict), verdict);
  });
}

function policyWith(traffic: string): string {
  return `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: p, namespace: shop }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }]
  traffic: ${traffic}
---
apiVersion: v1
kind: Secret
metadata: { name: keys, namespace: shop }
data: { key: ${Buffer.from("sesame\n").toString("base64")}, empty: "" }
---
apiVersion: v1
kind: Secret
metadata: { name: keys, namespace: infra }
data: { key: ${Buffer.from("not yours").toString("base64")} }
`;
}

test("a secretRef gives the Secret's text to the policy, and only its name to what is shown", () => {
  const { attachments, policies: shownPolicies } = translate(
    GATEWAY + ROUTE + policyWith("{ backendAuth: { key: { secretRef: { name: keys, key: key } } } }"),
  );
  assert.deepEqual(attachments[0]?.config, { key: "sesame" });
  assert.doesNotMatch(JSON.stringify(shownPolicies), /sesame/);
});

const REFUSED: Record<string, [traffic: string, message: RegExp]> = {
  "a file": ["{ backendAuth: { key: { file: /etc/passwd } } }", /cannot use a file: use secretRef/],
  "a file of passwords": ["{ basicAuthentication: { htpasswd: { file: /etc/passwd } } }", /cannot use a file/],
  "a key set in a file": [
    "{ jwtAuthentication: { issuer: 'https://a.example', audiences: [a], jwks: /etc/passwd } }",
    /cannot use a file/,
  ],
  "a key set under file": [
    "{ jwtAuthentication: { issuer: 'https://a.example', audiences: [a], jwks: { file: /etc/passwd } } }",
    /cannot use a file/,
  ],
  "a root certificate in a file": ["{ backendTLS: { root: /etc/passwd } }", /cannot use a file: use secretRef/],
  "the name under which a granted text is read": [
    "{ backendTLS: { root: 'secretRef:infra/keys/key' } }",
    /cannot use a file: use secretRef/,
  ],
  "a Secret of another namespace": [
    "{ backendAuth: { key: { secretRef: { name: keys, namespace: infra, key: key } } } }",
    /in another namespace, whose ReferenceGrants do not allow this/,
  ],
  "a Secret that is not there": ["{ backendAuth: { key: { secretRef: { name: gone, key: key } } } }", /was not found/],
  "a key that it does not have": ["{ backendAuth: { key: { secretRef: { name: keys, key: no } } } }", /has no key no/],
  "an empty key": ["{ backendAuth: { key: { secretRef: { name: keys, key: empty } } } }", /is empty/],
  "a mirror by its address": ["{ requestMirror: [{ host: '127.0.0.1:15000' }] }", /cannot use a host by its address/],
  "a mirror by the name of a Service": [
    "{ requestMirror: [{ service: { name: infra/web:80 } }] }",
    /a Service by its name/,
  ],
  "a Secret where no secret stands": ["{ directResponse: { body: { secretRef: { name: keys, key: key } } } }", /body/],
};

for (const [what, [traffic, message]] of Object.entries(REFUSED)) {
  test(`a policy of a cluster cannot use ${what}`, () => {
    const result = translate(GATEWAY + ROUTE + policyWith(traffic));
    const condition = result.policies[0]?.status.ancestors[0]?.conditions[0];
    assert.equal(condition?.status, "False");
    assert.match(condition?.message ?? "", message);
    assert.deepEqual(result.attachments, []);
    if (/Authentication/.test(traffic)) assert.equal(result.closures.length, 1, "a protection closes its target");
    assert.doesNotMatch(JSON.stringify(result), /not yours/);
  });
}

test("listeners of one port with one hostname contradict each other, and a more specific one keeps its names", () => {
  const listeners = (text: string): ResourceResult =>
    translate(GATEWAY.replace(/ {4}- \{ name: http.*/, text.replaceAll(/^/gm, "    ")) + ROUTE);
  const conflict = listeners(`- { name: a, port: 80, protocol: HTTP, hostname: x.example }
- { name: b, port: 80, protocol: HTTP, hostname: X.example }
- { name: c, port: 80, protocol: HTTP, hostname: y.example }
- { name: d, port: 81, protocol: HTTP }
- { name: e, port: 81, protocol: HTTPS }
- { name: f, port: 82, protocol: UDP }`);
  assert.deepEqual(
    conflict.gatewayOutcomes[0]?.listeners.map(
      ({ name, accepted, conflicted }) => `${name} ${accepted.reason} ${conflicted.isTrue}`,
    ),
    [
      "a HostnameConflict true",
      "b HostnameConflict true",
      "c Accepted false",
      "d ProtocolConflict true",
      "e ProtocolConflict true",
      "f UnsupportedProtocol false",
    ],
  );
  const isolated = listeners(`- { name: any, port: 80, protocol: HTTP, allowedRoutes: { namespaces: { from: All } } }
- { name: wild, port: 80, protocol: HTTP, hostname: "*.x.example", allowedRoutes: { namespaces: { from: All } } }`);
  assert.deepEqual(
    isolated.routes.map(({ route, except }) => [route.name, route.hostnames, except]),
    [
      ["shop/web", undefined, ["*.x.example"]],
      ["shop/web@infra/edge:80#1", ["*.x.example"], undefined],
    ],
  );
});

const base64 = (value: string): string => Buffer.from(value).toString("base64");

const FRONTENDS: Record<string, [frontend: string, accepted: string, resolvedRefs: string]> = {
  "a ConfigMap that is missing": [
    "{ validation: { caCertificateRefs: [{ group: '', kind: ConfigMap, name: gone }] } }",
    "false NoValidCACertificate",
    "false InvalidCACertificateRef",
  ],
  "another kind": [
    "{ validation: { caCertificateRefs: [{ group: '', kind: Secret, name: roots }] } }",
    "false NoValidCACertificate",
    "false InvalidCACertificateKind",
  ],
  "a ConfigMap of another namespace": [
    "{ validation: { caCertificateRefs: [{ group: '', kind: ConfigMap, name: roots, namespace: shop }] } }",
    "false NoValidCACertificate",
    "false RefNotPermitted",
  ],
  "no reference": ["{ validation: { caCertificateRefs: [] } }", "false NoValidCACertificate", "true ResolvedRefs"],
  "a mode that admits clients without a valid certificate": [
    "{ validation: { mode: AllowInsecureFallback, caCertificateRefs: [{ group: '', kind: ConfigMap, name: roots }] } }",
    "false UnsupportedValue",
    "true ResolvedRefs",
  ],
};
for (const [what, [frontend, accepted, resolvedRefs]] of Object.entries(FRONTENDS))
  test(`a listener whose clients are validated with ${what} is not served`, () => {
    const { gateways, gatewayOutcomes } = translate(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: infra }
spec:
  tls: { frontend: { default: ${frontend} } }
  listeners:
    - { name: web, port: 443, protocol: HTTPS, tls: { certificateRefs: [{ name: pair }] } }
    - { name: plain, port: 80, protocol: HTTP }
---
apiVersion: v1
kind: Secret
metadata: { name: pair, namespace: infra }
data: { tls.crt: ${base64(certificates.server.cert)}, tls.key: ${base64(certificates.server.key)} }
`);
    assert.deepEqual(
      gateways.map(({ port }) => port),
      [80],
    );
    const [listener] = gatewayOutcomes[0]?.listeners ?? [];
    assert.equal(listener && shown(listener.accepted), accepted);
    assert.equal(listener && shown(listener.resolvedRefs), resolvedRefs);
  });

test("HTTP/2 without TLS to a Service that says so, and retries as the rule has them", () => {
  const h2c = GATEWAY.replace("port: 8080 }]", "port: 8080, appProtocol: kubernetes.io/h2c }]");
  const mirror = "filters: [{ type: RequestMirror, requestMirror: { backendRef: { name: web, port: 8080 } } }], ";
  const retry = "retry: { attempts: 40, codes: [503], backoff: 50ms }, ";
  const [written] = translate(h2c + ROUTE.replace("{ backendRefs", `{ ${mirror}${retry}backendRefs`)).routes;
  assert.deepEqual(written?.route.backends, [{ service: { name: "shop/web:8080" }, protocol: "h2c" }]);
  assert.deepEqual(written?.route.policies?.retry, { attempts: 10, codes: [503], backoff: "50ms" });
  assert.equal(written?.closed, undefined);
  const [plain] = translate(GATEWAY + ROUTE.replace("{ backendRefs", "{ retry: { attempts: 0 }, backendRefs")).routes;
  assert.equal(plain?.route.policies, undefined);
  const [wrong] = translate(GATEWAY + ROUTE.replace("{ backendRefs", "{ retry: { attempts: x }, backendRefs")).routes;
  assert.match(wrong?.closed ?? "", /retry/);
});

test("the status of a route names the rule and field of a match that is not valid", () => {
  const rules = `rules:
    - { matches: [{ path: { type: PathPrefix, value: /b } }], backendRefs: [{ name: web, port: 8080 }] }
    - { matches: [{ path: { type: RegularExpression, value: "/a(" } }], backendRefs: [{ name: web, port: 8080 }] }`;
  const { routeOutcomes } = translate(GATEWAY + ROUTE.replace(/rules:.*/, rules));
  const { accepted, partiallyInvalid } = routeOutcomes[0]?.parents[0] ?? {};
  assert.equal(accepted?.isTrue, true);
  assert.match(partiallyInvalid?.message ?? "", /^Rules closed: .*spec\.rules\[1\].*matches\.0\.path\.regex/);
});

test("documents of a cluster do not reach the standalone configuration", () => {
  const result = translate(
    policyWith("{ authorization: { rules: ['false'] } }").replace("HTTPRoute, name: web", "Gateway, name: edge"),
  );
  assert.equal(result.policies[0]?.status.ancestors[0]?.conditions[1]?.reason, "TargetNotFound");
});
