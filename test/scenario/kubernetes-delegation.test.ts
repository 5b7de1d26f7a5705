/** HTTPRoutes that delegate to other HTTPRoutes in a data plane, with policies of parent and child. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { dataPlane } from "../support/kubernetes/data-plane.ts";
import { backendFor } from "../support/scenario.ts";

const GROUP = "gateway.networking.k8s.io";
const object = (kind: string, name: string, namespace: string, spec: object, apiVersion = `${GROUP}/v1`) => ({
  apiVersion,
  kind,
  metadata: { name, namespace },
  spec,
});
const prefix = (value: string) => [{ path: { type: "PathPrefix", value } }];
const rules = (name: string, namespace: string, kind: string, expression: string): KubernetesObject =>
  object(
    "GatewayPolicy",
    name,
    namespace,
    {
      targetRefs: [{ group: GROUP, kind, name }],
      traffic: { authorization: { rules: [expression] } },
    },
    "policy.gateway.internal/v1alpha1",
  );

test("a request must match the parent and the child, and meet the policies of both", async (t) => {
  const web = await backendFor(t, (request, response) => void response.end(request.url));
  const child = { group: GROUP, kind: "HTTPRoute", name: "child", namespace: "team" };
  const { port } = await dataPlane(
    t,
    [
      object("Gateway", "edge", "shop", { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] }),
      object("HTTPRoute", "root", "shop", {
        parentRefs: [{ name: "edge" }],
        rules: [{ matches: prefix("/team"), backendRefs: [child] }],
      }),
      object("HTTPRoute", "child", "team", {
        rules: [
          { matches: prefix("/team/a"), backendRefs: [{ name: "web", port: 80 }] },
          { matches: prefix("/other"), backendRefs: [{ name: "web", port: 80 }] },
        ],
      }),
      object("Service", "web", "team", { ports: [{ port: 80 }] }, "v1"),
      object(
        "ReferenceGrant",
        "delegation",
        "team",
        { from: [{ group: GROUP, kind: "HTTPRoute", namespace: "shop" }], to: [{ group: GROUP, kind: "HTTPRoute" }] },
        `${GROUP}/v1beta1`,
      ),
      rules("root", "shop", "HTTPRoute", 'request.headers["x-root"] == "1"'),
      rules("child", "team", "HTTPRoute", 'request.headers["x-child"] == "1"'),
    ],
    { "team/web:80": [web.host] },
  );
  const status = async (path: string, headers: Record<string, string>): Promise<number> =>
    (await fetch(`http://127.0.0.1:${port}${path}`, { headers })).status;
  const both = { "x-root": "1", "x-child": "1" };
  assert.equal(await status("/team/a/b", both), 200);
  assert.equal(await status("/team/a/b", { "x-root": "1" }), 403);
  assert.equal(await status("/team/a/b", { "x-child": "1" }), 403);
  assert.equal(await status("/team/b", both), 404);
  assert.equal(await status("/team/b", { "x-child": "1" }), 403);
  assert.equal(await status("/other", both), 404);
});
