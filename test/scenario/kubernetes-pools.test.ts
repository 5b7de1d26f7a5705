/**
 * An InferencePool in a data plane: the picker's Service and the pool's pods come from the snapshot, and change without a
 * new configuration.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startApp } from "../../src/app/app.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { createSnapshot } from "../../src/config/documents/snapshot.ts";
import { createSnapshotSource } from "../../src/kubernetes/follow-controller.ts";
import { pass, startProcessor } from "../support/ext-proc/service.ts";
import { backendFor, eventually } from "../support/scenario.ts";

const PICKED = "x-gateway-destination-endpoint";
const at = (name: string) => ({ name, namespace: "shop" });

function documents(failureMode: string): KubernetesObject[] {
  return [
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "Gateway",
      metadata: at("edge"),
      spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
    },
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "HTTPRoute",
      metadata: at("models"),
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: [{ backendRefs: [{ group: "inference.networking.k8s.io", kind: "InferencePool", name: "models" }] }],
      },
    },
    {
      apiVersion: "inference.networking.k8s.io/v1",
      kind: "InferencePool",
      metadata: at("models"),
      spec: {
        selector: { matchLabels: { app: "models" } },
        targetPorts: [{ number: 8000 }],
        endpointPickerRef: { name: "picker", port: { number: 9002 }, failureMode },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: at("picker"),
      spec: { ports: [{ port: 9002, appProtocol: "kubernetes.io/h2c" }] },
    },
  ];
}

test("an InferencePool follows its picker, and only to its own pods", async (t) => {
  const one = await backendFor(t, (_request, response) => void response.end("one"));
  const other = await backendFor(t, (_request, response) => void response.end("other"));
  let picked = one.host;
  const picker = await startProcessor((message) => {
    if (message.kind !== "requestHeaders") return pass(message);
    const setHeaders = [{ header: { key: PICKED, rawValue: Buffer.from(picked) } }];
    return { requestHeaders: { response: { headerMutation: { setHeaders } } } };
  });
  t.after(() => picker.close());
  const source = createSnapshotSource(() => undefined);
  const endpoints = (pickers: readonly string[], pods: readonly string[]) => ({
    "shop/picker:9002": pickers,
    "inferencepool/shop/models": pods,
  });
  source.take(createSnapshot("shop/edge", documents("FailClose"), endpoints([picker.host], [one.host])));
  const app = await startApp({
    sources: { text: "config: { adminAddr: off }" },
    cluster: source,
    environment: {},
    clock: systemClock,
    output: { write: () => undefined, dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
  });
  t.after(() => Promise.all([app.stop(), app.stop()]));
  const [port] = app.ports().values();
  const call = async (body?: string): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${port}/`, body === undefined ? {} : { method: "POST", body });
    return `${response.status} ${response.status === 200 ? await response.text() : ""}`.trim();
  };

  assert.equal(await call(), "200 one");
  picked = other.host;
  assert.equal(await call(), "503", "a selection outside of the pool");
  source.take(createSnapshot("shop/edge", documents("FailClose"), endpoints([picker.host], [one.host, other.host])));
  await eventually("the new pod is used", async () => (await call()) === "200 other");
  // Two replicas of the picker refuse connections, for example because their pods have just ended.
  const gone = await Promise.all([backendFor(t), backendFor(t)]);
  await Promise.all(gone.map((backend) => backend.close()));
  picked = one.host;
  const replicas = [...gone.map(({ host }) => host), picker.host];
  source.take(createSnapshot("shop/edge", documents("FailClose"), endpoints(replicas, [one.host])));
  await eventually("the new replicas are used", async () => (await call()) === "200 one");
  for (let i = 0; i < 6; i++) {
    assert.equal(await call(), "200 one");
    assert.equal(await call("some body"), "200 one");
  }
  source.take(createSnapshot("shop/edge", documents("FailClose"), endpoints([], [one.host])));
  await eventually("without a picker, requests fail", async () => (await call()) === "503");
  source.take(createSnapshot("shop/edge", documents("FailOpen"), endpoints([], [one.host])));
  await eventually("FailOpen uses any pod", async () => (await call()) === "200 one");
});
