/**
 * Two namespaces, a tenant with all permissions in one of them, and the initial documents of both.
 */

export const OWN = "gateway-tenant";
export const THEIRS = "gateway-victim";
export const TENANT = "tenant@example.com";
export const PORT = 18_082;
export const SECRET = "only-of-the-victim-5f1c";
export const GATEWAY_GROUP = "gateway.networking.k8s.io";
export const POLICY_GROUP = "policy.gateway.internal";

export const gatewayOf = (namespace, name = "edge", more = {}) => ({
  apiVersion: `${GATEWAY_GROUP}/v1`,
  kind: "Gateway",
  metadata: { name, namespace },
  spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: PORT, protocol: "HTTP", ...more }] },
});
export const routeOf = (name, rule, spec = {}, namespace = OWN) => ({
  apiVersion: `${GATEWAY_GROUP}/v1`,
  kind: "HTTPRoute",
  metadata: { name, namespace },
  spec: { parentRefs: [{ name: "edge" }], rules: [rule], ...spec },
});
export const policyOf = (name, spec) => ({
  apiVersion: `${POLICY_GROUP}/v1alpha1`,
  kind: "GatewayPolicy",
  metadata: { name, namespace: OWN },
  spec,
});
export const backendOf = (name, spec, namespace = OWN) => ({
  apiVersion: `${POLICY_GROUP}/v1alpha1`,
  kind: "Backend",
  metadata: { name, namespace },
  spec,
});
export const grantOf = (namespace, name = "grant") => ({
  apiVersion: `${GATEWAY_GROUP}/v1beta1`,
  kind: "ReferenceGrant",
  metadata: { name, namespace },
  spec: {
    from: ["HTTPRoute", "Gateway"]
      .map((kind) => ({ group: GATEWAY_GROUP, kind, namespace: OWN }))
      .concat(["GatewayPolicy", "Backend"].map((kind) => ({ group: POLICY_GROUP, kind, namespace: OWN }))),
    to: [
      { group: "", kind: "Secret" },
      { group: "", kind: "Service" },
      { group: POLICY_GROUP, kind: "Backend" },
    ],
  },
});
export const at = (path) => [{ path: { type: "PathPrefix", value: path } }];
export const toService = (name = "web") => [{ name, port: 80 }];
export const theirSecret = { secretRef: { name: "keys", namespace: THEIRS, key: "token" } };
export const hijack = {
  headerModifiers: { response: { set: { "x-hijacked": "yes" } } },
};

export function victimObjects() {
  const set = [{ name: "x-of", value: "victim" }];
  return [
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "keys", namespace: THEIRS },
      stringData: { token: SECRET },
    },
    gatewayOf(THEIRS),
    routeOf(
      "web",
      {
        filters: [{ type: "ResponseHeaderModifier", responseHeaderModifier: { set } }],
        backendRefs: toService(),
      },
      {},
      THEIRS,
    ),
    backendOf("models", { ai: { provider: { demo: {} } } }, THEIRS),
  ];
}

export function ownObjects() {
  return [gatewayOf(OWN), routeOf("web", { matches: at("/own"), backendRefs: toService() })];
}

export function ownBackend(name) {
  return { group: POLICY_GROUP, kind: "Backend", name };
}
