import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { addressesOf, missingAddress } from "./service-addresses.ts";

const edge = (...addresses: object[]): KubernetesObject => ({
  apiVersion: "gateway.networking.k8s.io/v1",
  kind: "Gateway",
  metadata: { name: "edge", namespace: "infra" },
  spec: { gatewayClassName: "gateway", addresses },
});
const service = (spec: object, ingress: object[] = []): KubernetesObject => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "edge-gateway", namespace: "infra" },
  spec,
  status: { loadBalancer: { ingress } },
});
const reasonOf = (gateway: KubernetesObject, ...services: KubernetesObject[]): string | undefined =>
  missingAddress(gateway, addressesOf(gateway, services, []))?.reason;

test("a Gateway is not programmed before its Service has the requested address", () => {
  const requested = edge({ type: "IPAddress", value: "203.0.113.9" });
  const balanced = (...ips: string[]): KubernetesObject =>
    service(
      { type: "LoadBalancer" },
      ips.map((ip) => ({ ip })),
    );
  assert.equal(reasonOf(requested), "AddressNotAssigned");
  assert.equal(reasonOf(requested, balanced()), "AddressNotAssigned");
  assert.equal(reasonOf(requested, balanced("203.0.113.8")), "AddressNotUsable");
  assert.equal(reasonOf(requested, balanced("203.0.113.8", "203.0.113.9")), undefined);
  assert.equal(reasonOf(requested, service({ type: "ClusterIP", clusterIP: "203.0.113.9" })), undefined);
});

test("spellings of an IPv6 address are the same address", () => {
  const assigned = service({ type: "ClusterIP", clusterIP: "2001:db8::9" });
  assert.equal(reasonOf(edge({ value: "2001:DB8:0::9" }), assigned), undefined);
});

test("an address without a value is any address", () => {
  assert.equal(reasonOf(edge({ type: "IPAddress" }), service({ clusterIP: "10.0.0.1" })), undefined);
});
