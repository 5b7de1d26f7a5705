/**
 * The CustomResourceDefinition of Backend, made from the same schemas that validate `backends[]`. Unknown fields and nulls
 * come through everywhere: dropped by the API server, a misspelt credential or filter would leave the backend open.
 */
import { backendSpecSchema } from "../resources/backend-document.ts";
import { POLICY_API_GROUP } from "../resources/documents.ts";
import { column } from "./policy-crd.ts";
import { BACKEND_STATUS } from "./status-schema.ts";
import { type Schema, structuralSchema } from "./structural-schema.ts";

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
