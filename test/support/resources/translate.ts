/**
 * Translates resource documents together with a small standalone document, with fake policies.
 */
import assert from "node:assert/strict";
import { z } from "zod";
import { finish } from "../../../src/base/sliced-work.ts";
import type { PolicyResource, ResourceInput, ResourceResult } from "../../../src/config/documents/documents.ts";
import { translateResources } from "../../../src/config/documents/translate.ts";
import { configSchema } from "../../../src/config/schema/schema.ts";
import { parseSource } from "../../../src/config/text/yaml-source.ts";
import { definePolicy, type PolicyDefinition } from "../../../src/core/policy.ts";
import { secret } from "../../../src/core/schema.ts";
import { cors } from "../../../src/policies/cors/policy.ts";
import { rateLimit } from "../../../src/policies/rate-limit/policy.ts";
import { requestHeaderModifier } from "../../../src/policies/request-header-modifier/policy.ts";
import { requestRedirect } from "../../../src/policies/request-redirect/policy.ts";
import { responseHeaderModifier } from "../../../src/policies/response-header-modifier/policy.ts";
import { timeout } from "../../../src/policies/timeout/policy.ts";
import { urlRewrite } from "../../../src/policies/url-rewrite/policy.ts";

/** Stands for the security policies of the real list, whose own rules are tested where they live. */
const authorization = definePolicy({
  kind: "authorization",
  doc: "Admits.",
  scopes: ["gateway", "route"],
  role: "security",
  protection: () => "paths",
  schema: z.strictObject({ rules: z.array(z.string().startsWith("jwt", "bad rule")).min(1) }),
  compile: () => ({}),
});
const apiKey = definePolicy({
  kind: "apiKey",
  doc: "Knows keys.",
  scopes: ["route"],
  role: "security",
  protection: () => "paths",
  schema: z.strictObject({ keys: z.array(z.strictObject({ key: secret() })) }),
  compile: () => ({}),
});
const policies: readonly PolicyDefinition[] = [
  apiKey,
  cors,
  authorization,
  rateLimit,
  requestHeaderModifier,
  responseHeaderModifier,
  timeout,
  urlRewrite,
  requestRedirect,
];

export const standalone: ResourceInput["standalone"] = {
  gateways: [{ name: "default", policyKinds: [], port: 3000 }],
  routes: [
    { name: "web", policyKinds: [], gateways: ["default"] },
    { name: "styled", policyKinds: ["cors"], gateways: ["default"] },
    { name: "lonely", policyKinds: [], gateways: [] },
  ],
  services: { "web:8080": "127.0.0.1:9000", "shop/cart": { host: "127.0.0.1:9001" }, plain: "10.0.0.1" },
};

export function translate(yaml: string, more: Partial<ResourceInput> = {}): ResourceResult {
  const { documents, problems } = finish(parseSource("test.yaml", yaml, {}));
  assert.deepEqual(problems, []);
  const routeSchema = configSchema.shape.routes.unwrap().element;
  return translateResources({
    documents,
    standalone,
    policies,
    routeSchema,
    nowMs: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
    ...more,
  });
}

export function policy(spec: string, name = "limits"): string {
  return `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: ${name}, namespace: default }
spec:
${spec.replace(/^/gm, "  ")}
`;
}

export const WEB = "targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }]";
export const LIMIT = "traffic: { rateLimit: { local: [{ requests: 3, unit: Seconds, burst: 3 }] } }";

export function conditions(resource: PolicyResource | undefined): string[] {
  return (resource?.status.ancestors ?? []).flatMap(({ ancestorRef, conditions: list }) =>
    list.map(
      ({ type, status, reason, message }) =>
        `${ancestorRef.kind} ${ancestorRef.name}: ${type} ${status} ${reason}: ${message}`,
    ),
  );
}
