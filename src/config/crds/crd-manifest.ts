/**
 * The CRDs as the manifests that stand in kubernetes/: a test holds the files against this.
 */
import { stringify } from "yaml";
import type { PolicyDefinition } from "../../core/policy.ts";
import { policies } from "../../policies/index.ts";
import { backendSpecSchema } from "../resources/backend-document.ts";
import { POLICY_API_GROUP } from "../resources/documents.ts";
import { partsOf, specSchema } from "../resources/parts.ts";
import { type Schema, type StructuralOptions, structuralSchema, validations } from "./structural-schema.ts";

const HEADER = "# Generated from the schemas in src by `npm run generate`: do not edit.\n";

/** File name → text. */
export function crdManifests(): Readonly<Record<string, string>> {
  return {
    "gatewaypolicy-crd.yaml": manifestOf(gatewayPolicyCrd(policies)),
    "backend-crd.yaml": manifestOf(backendCrd()),
  };
}

function manifestOf(crd: Schema): string {
  return HEADER + stringify(crd, { lineWidth: 120, aliasDuplicateObjects: false });
}

/**
 * The CustomResourceDefinition of Backend, made from the same schemas that validate `backends[]`. Unknown fields and nulls
 * come through everywhere: dropped by the API server, a misspelt credential or filter would leave the backend open.
 */

export function backendCrd(): Schema {
  const condition = (field: string): string => `.status.conditions[?(@.type=="Accepted")].${field}`;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `backends.${POLICY_API_GROUP}` },
    spec: {
      group: POLICY_API_GROUP,
      names: {
        kind: "Backend",
        listKind: "BackendList",
        plural: "backends",
        singular: "backend",
        shortNames: ["gwbe"],
      },
      scope: "Namespaced",
      versions: [
        {
          name: "v1alpha1",
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: [
            column("Accepted", "Whether the backend is valid.", condition("status")),
            column("Message", "Why not.", condition("message")),
            { ...column("Age", "Time since creation.", ".metadata.creationTimestamp"), type: "date" },
          ],
          schema: {
            openAPIV3Schema: {
              description: "MCP servers, an LLM provider or an HTTP server, for backendRefs of HTTPRoutes.",
              type: "object",
              required: ["spec"],
              properties: {
                apiVersion: { type: "string" },
                kind: { type: "string" },
                metadata: { type: "object" },
                spec: structuralSchema(backendSpecSchema, { isOpen: () => true, extra: {} }),
                status: BACKEND_STATUS,
              },
            },
          },
        },
      ],
    },
  };
}

/**
 * The CustomResourceDefinition of GatewayPolicy, made from the same schemas that validate documents here. What spans
 * several fields becomes a validation rule.
 */

/** Where a misspelt or empty protection would otherwise be dropped by the API server, besides the protections themselves. */
const OPEN = new Set(["", "traffic", "backend", "backend.mcp", "targetRefs[]"]);

const EXTRA: StructuralOptions["extra"] = {
  "": validations({ rule: "has(self.traffic) || has(self.backend)", message: "one of traffic, backend is required" }),
  traffic: { minProperties: 1 },
  backend: { minProperties: 1 },
  "backend.mcp": { minProperties: 1 },
  "backend.mcp.authentication.provider": { maxProperties: 1, minProperties: 1 },
  "traffic.backendTLS": validations({
    rule: "has(self.cert) == has(self.key)",
    message: "cert and key must be set together",
  }),
  "traffic.cors.allowOrigins": { maxItems: 64 },
  "traffic.cors.allowOrigins[]": { maxLength: 512 },
  "traffic.cors": validations({
    rule: "!has(self.allowCredentials) || !self.allowCredentials || !('*' in self.allowOrigins)",
    message: "allowCredentials cannot be combined with the origin *: list the origins",
  }),
  "traffic.rateLimit": validations({
    rule: "has(self.local) || has(self.global)",
    message: "one of local, global is required",
  }),
  "traffic.rateLimit.local[]": validations(
    { rule: "has(self.requests) != has(self.tokens)", message: "exactly one of requests, tokens is required" },
    { rule: "!has(self.burst) || has(self.requests)", message: "burst can only be used with requests" },
    { rule: "!has(self.reserveOutput) || has(self.tokens)", message: "reserveOutput can only be used with tokens" },
  ),
};

export function gatewayPolicyCrd(policies: readonly PolicyDefinition[]): Schema {
  const protections = partsOf(policies)
    .filter(({ isSecurity }) => isSecurity)
    .map(({ field }) => field.join("."));
  const isOpen = (path: string): boolean =>
    OPEN.has(path) || protections.some((part) => path === part || /^[.[]/.test(after(path, part)));
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: `gatewaypolicies.${POLICY_API_GROUP}`,
      labels: { "gateway.networking.k8s.io/policy": "Direct" },
    },
    spec: {
      group: POLICY_API_GROUP,
      names: {
        kind: "GatewayPolicy",
        listKind: "GatewayPolicyList",
        plural: "gatewaypolicies",
        singular: "gatewaypolicy",
        shortNames: ["gwpol"],
      },
      scope: "Namespaced",
      versions: [
        {
          name: "v1alpha1",
          served: true,
          storage: true,
          subresources: { status: {} },
          // The status puts the ancestor first that says "False": a column shows only one.
          additionalPrinterColumns: [
            column(
              "Accepted",
              "Whether the policy is valid, for all its targets.",
              conditionPath("Accepted", "status"),
            ),
            column("Attached", "Whether all its targets are reached.", conditionPath("Attached", "status")),
            column("Reason", "Why, in one word.", conditionPath("Attached", "reason")),
            { ...column("Age", "Time since creation.", ".metadata.creationTimestamp"), type: "date" },
          ],
          schema: {
            openAPIV3Schema: {
              description:
                "Policies for the traffic and backends of Gateways and HTTPRoutes: limits, authentication, authorization and more.",
              type: "object",
              required: ["spec"],
              properties: {
                apiVersion: { type: "string" },
                kind: { type: "string" },
                metadata: { type: "object" },
                spec: structuralSchema(specSchema(policies), { isOpen, extra: EXTRA }),
                status: POLICY_STATUS,
              },
            },
          },
        },
      ],
    },
  };
}

/** What a path has below the other; empty if it is not below. */
function after(path: string, above: string): string {
  return path.startsWith(above) ? path.slice(above.length) : "";
}

function column(name: string, description: string, jsonPath: string): Schema {
  return { name, type: "string", description, jsonPath };
}

function conditionPath(type: string, field: string): string {
  return `.status.ancestors[0].conditions[?(@.type=="${type}")].${field}`;
}

/**
 * The status parts of our own kinds, as the Gateway API has them.
 */

const CONDITIONS = {
  type: "array",
  maxItems: 8,
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": ["type"],
  items: {
    type: "object",
    required: ["type", "status", "reason", "message", "lastTransitionTime"],
    properties: {
      type: { type: "string", maxLength: 316 },
      status: { type: "string", enum: ["True", "False", "Unknown"] },
      reason: { type: "string", maxLength: 1024 },
      message: { type: "string", maxLength: 32768 },
      observedGeneration: { type: "integer", format: "int64", minimum: 0 },
      lastTransitionTime: { type: "string", format: "date-time" },
    },
  },
};

const REFERENCE = {
  type: "object",
  required: ["name"],
  properties: {
    group: { type: "string" },
    kind: { type: "string" },
    namespace: { type: "string" },
    name: { type: "string" },
  },
};

const BACKEND_STATUS = {
  description: "Whether the backend is valid.",
  type: "object",
  properties: { conditions: CONDITIONS },
};

const POLICY_STATUS = {
  description: "For every Gateway that the policy reaches: whether it was accepted and attached.",
  type: "object",
  required: ["ancestors"],
  properties: {
    ancestors: {
      type: "array",
      maxItems: 16,
      items: {
        type: "object",
        required: ["ancestorRef", "controllerName"],
        properties: { ancestorRef: REFERENCE, controllerName: { type: "string" }, conditions: CONDITIONS },
      },
    },
  },
};
