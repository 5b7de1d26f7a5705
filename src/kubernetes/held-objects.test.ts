import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { createMetrics } from "../record/log/metrics.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { registerControllerMetrics } from "./controller-metrics.ts";
import { createHeldObjects } from "./held-objects.ts";
import { heldStatuses } from "./status.ts";

const API = "gateway.networking.k8s.io/v1";
const object = (kind: string, name: string, spec: object, uid = name): KubernetesObject => ({
  apiVersion: API,
  kind,
  metadata: { name, uid, ...(kind === "GatewayClass" ? {} : { namespace: "shop" }) },
  spec,
});
const gatewayClass = object("GatewayClass", "gateway", { controllerName: "policy.gateway.internal/gateway" });
const gateway = (name: string) =>
  object("Gateway", name, { gatewayClassName: "gateway", listeners: [{ name: "http", port: 80, protocol: "HTTP" }] });
const route = (name: string, parent: string, uid = name) =>
  object("HTTPRoute", name, { parentRefs: [{ name: parent }], rules: [{ backendRefs: [] }] }, uid);

test("Gateways and routes that are created while policies cannot be read wait, and show why", () => {
  const before = [gatewayClass, gateway("edge"), route("old", "edge"), route("replaced", "edge", "1")];
  const added = [route("new", "edge"), gateway("late"), route("replaced", "edge", "2")];
  const all = [...before.slice(0, 3), ...added];
  const objects = createHeldObjects();
  assert.deepEqual(objects.split(before, true).held, []);
  const { usable, held } = objects.split(all, false);
  assert.deepEqual(held, added, "an object of the same name as a deleted one is new");
  const view = createClusterView(usable, 0);
  assert.deepEqual([...view.snapshots.keys()], ["shop/edge"]);
  assert.deepEqual(
    view.result.routes.map((one) => one.route.name),
    ["shop/old"],
  );
  const shown = heldStatuses(held, view, ["GatewayPolicy"], 0).map(
    ({ object: { metadata }, status }) => `${metadata.name} ${JSON.stringify(status)}`,
  );
  assert.equal(shown.length, 3);
  assert.match(shown[0] ?? "", /^late .*PoliciesReadable","status":"False"/);
  assert.match(
    shown[1] ?? "",
    /^new .*"Accepted","status":"False","reason":"Pending","message":"GatewayPolicy cannot be/,
  );
  assert.deepEqual(objects.split(all, true), { usable: all, held: [] }, "readable again");
});

test("a route of another controller has no status while it waits", () => {
  const objects = createHeldObjects();
  objects.split([gatewayClass], true);
  const { usable, held } = objects.split([gatewayClass, route("theirs", "other")], false);
  assert.deepEqual(heldStatuses(held, createClusterView(usable, 0), ["GatewayPolicy"], 0), []);
});

test("metrics show the kinds that cannot be read", () => {
  const metrics = createMetrics();
  const state = {
    waitingFor: ["Secret"],
    unreadable: ["GatewayPolicy"],
    held: 2,
    isLeader: true,
    isConnected: true,
    gateways: 3,
    deployFailures: 1,
    statusWrites: 7,
    reconcileMs: 20,
  };
  let isStarted = false;
  registerControllerMetrics(metrics, () => (isStarted ? state : undefined));
  assert.match(metrics.render(), /gateway_controller_leader 0\n/);
  isStarted = true;
  const text = metrics.render();
  for (const line of [
    "gateway_controller_leader 1",
    'gateway_controller_kind_unreadable{kind="GatewayPolicy"} 1',
    'gateway_controller_kind_pending{kind="Secret"} 1',
    "gateway_controller_held_objects 2",
    "gateway_controller_deploy_failures 1",
    "gateway_controller_status_writes_total 7",
    "gateway_controller_reconcile_seconds 0.02",
  ])
    assert.ok(text.includes(`${line}\n`), `${line} is missing in\n${text}`);
});
