/**
 * Attempts of a tenant to read or affect another namespace.
 */
import {
  at,
  backendOf,
  GATEWAY_GROUP,
  gatewayOf,
  grantOf,
  hijack,
  OWN,
  ownBackend,
  policyOf,
  routeOf,
  THEIRS,
  theirSecret,
  toService,
} from "./tenant-documents.mjs";

/**
 * The applied object, whether the API server rejects it (403) or the gateway does (a condition that is False), and the
 * path of the tenant's own Gateway under which it would be visible.
 */
export function attempts() {
  return {
    "a policy with a Secret of another namespace": {
      objects: [
        routeOf("attempt-a", { matches: at("/attempt-a"), backendRefs: toService() }),
        policyOf("attempt-a", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-a" }],
          traffic: { backendAuth: { key: theirSecret } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-a",
    },
    "a Backend with a Secret of another namespace": {
      objects: [
        backendOf("attempt-b", { ai: { provider: { openAI: {} }, auth: { key: theirSecret } } }),
        routeOf("attempt-b", { matches: at("/attempt-b"), backendRefs: [ownBackend("attempt-b")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-b",
    },
    "a Backend that sends a Secret of another namespace as a header": {
      objects: [
        backendOf("attempt-c", {
          mcp: { targets: [{ name: "a", mcp: { url: "http://example.com/", headers: { "x-key": theirSecret } } }] },
        }),
        routeOf("attempt-c", { matches: at("/attempt-c"), backendRefs: [ownBackend("attempt-c")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-c",
    },
    "a listener with a Secret of another namespace": {
      objects: [
        gatewayOf(OWN, "attempt-d", {
          port: 18_443,
          protocol: "HTTPS",
          tls: { certificateRefs: [{ name: "keys", namespace: THEIRS }] },
        }),
      ],
      refused: "ResolvedRefs",
    },
    "a route to a Service of another namespace": {
      objects: [
        routeOf("attempt-e", {
          matches: at("/attempt-e"),
          backendRefs: [{ name: "web", namespace: THEIRS, port: 80 }],
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-e",
    },
    "a route to a Backend of another namespace": {
      objects: [
        routeOf("attempt-f", {
          matches: at("/attempt-f"),
          backendRefs: [{ ...ownBackend("models"), namespace: THEIRS }],
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-f",
    },
    "a mirror to a Service of another namespace": {
      objects: [
        routeOf("attempt-g", {
          matches: at("/attempt-g"),
          filters: [
            {
              type: "RequestMirror",
              requestMirror: { backendRef: { name: "web", namespace: THEIRS, port: 80 } },
            },
          ],
          backendRefs: toService(),
        }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-g",
    },
    "a route on a Gateway of another namespace": {
      objects: [
        routeOf(
          "attempt-h",
          { matches: at("/"), backendRefs: toService() },
          { parentRefs: [{ name: "edge", namespace: THEIRS }] },
        ),
      ],
      refused: "Accepted",
    },
    "a ListenerSet on a Gateway of another namespace": {
      objects: [
        {
          apiVersion: `${GATEWAY_GROUP}/v1`,
          kind: "ListenerSet",
          metadata: { name: "attempt-u", namespace: OWN },
          spec: {
            parentRef: { name: "edge", namespace: THEIRS },
            listeners: [{ name: "http", port: 18_083, protocol: "HTTP" }],
          },
        },
      ],
      refused: "Accepted",
    },
    "a policy on a route of another namespace": {
      objects: [
        policyOf("attempt-i", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "web", namespace: THEIRS }],
          traffic: hijack,
        }),
      ],
      refused: "Accepted",
    },
    "a policy on a Gateway of another namespace": {
      objects: [
        policyOf("attempt-j", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "Gateway", name: "edge", namespace: THEIRS }],
          traffic: hijack,
        }),
      ],
      refused: "Accepted",
    },
    "a policy on a name with a namespace in it": {
      objects: [
        policyOf("attempt-k", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: `${THEIRS}/web` }],
          traffic: hijack,
        }),
      ],
      refused: "Attached",
    },
    "a grant in the own namespace, and the Secret again": {
      objects: [
        grantOf(OWN),
        routeOf("attempt-l", { matches: at("/attempt-l"), backendRefs: toService() }),
        policyOf("attempt-l", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-l" }],
          traffic: { backendAuth: { key: theirSecret } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-l",
    },
    "a grant in the other namespace": { objects: [grantOf(THEIRS)], refused: 403 },
    "a policy in the other namespace": {
      objects: [{ ...policyOf("attempt-m", { traffic: hijack }), metadata: { name: "attempt-m", namespace: THEIRS } }],
      refused: 403,
    },
    "a Service that is another name for one of the other namespace": {
      objects: [
        {
          apiVersion: "v1",
          kind: "Service",
          metadata: { name: "attempt-n", namespace: OWN },
          spec: { type: "ExternalName", externalName: `web.${THEIRS}.svc.cluster.local`, ports: [{ port: 80 }] },
        },
        routeOf("attempt-n", { matches: at("/attempt-n"), backendRefs: toService("attempt-n") }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-n",
    },
    "endpoints with the label of the other namespace's Service": {
      objects: [
        {
          apiVersion: "discovery.k8s.io/v1",
          kind: "EndpointSlice",
          metadata: { name: "attempt-o", namespace: OWN, labels: { "kubernetes.io/service-name": `${THEIRS}/web` } },
          addressType: "IPv4",
          ports: [{ port: 1, protocol: "TCP" }],
          endpoints: [{ addresses: ["10.0.0.1"] }],
        },
      ],
      refused: 422,
    },
    "the token of the data plane's ServiceAccount": {
      objects: [
        routeOf("attempt-p", { matches: at("/attempt-p"), backendRefs: toService() }),
        policyOf("attempt-p", {
          targetRefs: [{ group: GATEWAY_GROUP, kind: "HTTPRoute", name: "attempt-p" }],
          traffic: { backendAuth: { key: { file: "/var/run/secrets/gateway/token" } } },
        }),
      ],
      refused: "Accepted",
      path: "/attempt-p",
    },
    "the admin interface of the data plane": {
      objects: [
        backendOf("attempt-q", { host: "127.0.0.1:15000" }),
        routeOf("attempt-q", { matches: at("/attempt-q"), backendRefs: [ownBackend("attempt-q")] }),
      ],
      // Rejected for each connection, because names can change their addresses.
      refused: undefined,
      path: "/attempt-q",
      status: 502,
    },
    "the machine's metadata service": {
      objects: [
        backendOf("attempt-r", { host: "169.254.169.254:80" }),
        routeOf("attempt-r", { matches: at("/attempt-r"), backendRefs: [ownBackend("attempt-r")] }),
      ],
      refused: undefined,
      path: "/attempt-r",
      status: 502,
    },
    "a process": {
      objects: [
        backendOf("attempt-s", { mcp: { targets: [{ name: "a", stdio: { cmd: "sh" } }] } }),
        routeOf("attempt-s", { matches: at("/attempt-s"), backendRefs: [ownBackend("attempt-s")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-s",
    },
    "a unix socket": {
      objects: [
        backendOf("attempt-t", { host: "unix:/var/lib/gateway/x.sock" }),
        routeOf("attempt-t", { matches: at("/attempt-t"), backendRefs: [ownBackend("attempt-t")] }),
      ],
      refused: "ResolvedRefs",
      path: "/attempt-t",
    },
  };
}
