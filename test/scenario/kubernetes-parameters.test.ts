/**
 * The parameters of data planes: a controller over an API server in memory deploys a Gateway, and its parameters change
 * while a data plane serves it.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { fieldsOf, listOf } from "../../src/config/text/value-shapes.ts";
import type { ApiClient } from "../../src/kubernetes/api-client.ts";
import { AUTOSCALERS, DEPLOYMENTS, KINDS, pathOfKind } from "../../src/kubernetes/cluster-cache.ts";
import { startController } from "../../src/kubernetes/controller.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { eventually } from "../support/eventually.ts";
import { type FakeApi, fakeApi } from "../support/kubernetes/fake-api.ts";

const GATEWAY_API = "/apis/gateway.networking.k8s.io/v1";
const GATEWAYS = `${GATEWAY_API}/gateways`;
const PARAMETERS = "/apis/policy.gateway.internal/v1alpha1/gatewayparameters";
const REFERENCE = { group: "policy.gateway.internal", kind: "GatewayParameters", name: "large" };

interface Deployed {
  readonly api: FakeApi;
  /** The Deployments that the controller applied, in order. */
  readonly deployments: KubernetesObject[];
  setParameters(spec: object): void;
  /** Contains the condition of the Gateway as `status reason`. */
  condition(type: string): string;
}

async function deployed(t: TestContext, spec: object): Promise<Deployed> {
  const api = fakeApi();
  const deployments: KubernetesObject[] = [];
  api.install(...[...KINDS, DEPLOYMENTS, AUTOSCALERS].map(pathOfKind));
  api.put(`${GATEWAY_API}/gatewayclasses`, {
    metadata: { name: "gateway" },
    spec: { controllerName: "policy.gateway.internal/gateway" },
  });
  const setParameters = (written: object): void =>
    api.put(PARAMETERS, { metadata: { name: "large", namespace: "infra" }, spec: written });
  setParameters(spec);
  api.put(GATEWAYS, {
    metadata: { name: "edge", namespace: "infra", uid: "uid-1", generation: 1 },
    spec: {
      gatewayClassName: "gateway",
      infrastructure: { parametersRef: REFERENCE },
      listeners: [{ name: "http", port: 80, protocol: "HTTP" }],
    },
  });
  const client: ApiClient = {
    ...api,
    async request(request) {
      if (request.type !== "application/apply-patch+yaml") return api.request(request);
      const object = request.body as KubernetesObject;
      if (object.kind === "Deployment") deployments.push(object);
      return object;
    },
  };
  const controller = await startController({
    client,
    clock: systemClock,
    logger: silentLogger,
    random: () => 0.5,
    namespace: "system",
    identity: "one",
    listen: { host: "127.0.0.1", port: 0 },
    host: "127.0.0.1",
    url: "https://127.0.0.1:9443",
    deploy: { image: "image", replicas: 1, serviceType: "ClusterIP", backendNetworks: "" },
  });
  t.after(() => controller.stop());
  await eventually("a Deployment", () => deployments.length === 1);
  return {
    api,
    deployments,
    setParameters,
    condition(type) {
      const conditions = listOf(fieldsOf(api.get(GATEWAYS, "infra", "edge")?.status).conditions).map(fieldsOf);
      const found = conditions.find((one) => one.type === type);
      return `${String(found?.status)} ${String(found?.reason)}`;
    },
  };
}

test("invalid parameters keep the Deployment, and valid ones change it", async (t) => {
  const { deployments, setParameters, condition } = await deployed(t, { replicas: 2 });
  await eventually("accepted", () => condition("Accepted") === "True Accepted");
  setParameters({ replicas: 3, replica: 2 });
  await eventually("accepted", () => condition("Accepted") === "False InvalidParameters");
  assert.equal(deployments.length, 1, "the Deployment stays");
  setParameters({ replicas: 3 });
  await eventually("accepted", () => condition("Accepted") === "True Accepted");
  assert.deepEqual(
    deployments.map(({ spec }) => fieldsOf(spec).replicas),
    [2, 3],
  );
});
