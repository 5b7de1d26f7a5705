/**
 * The CustomResourceDefinition of GatewayPolicy, made from the same schemas that validate documents here. An API
 * server takes only structural schemas: what it cannot express (unions, key patterns) is left to the gateway, which
 * reports it in the status; what spans several fields becomes a validation rule.
 */
import { z } from "zod";
import type { PolicyDefinition } from "../../core/policy.ts";
import { POLICY_API_GROUP } from "./documents.ts";
import { isObject, specSchema } from "./parts.ts";

type Schema = Record<string, unknown>;

/** Keywords that mean the same in JSON schema and in a structural schema. */
const KEPT = [
  "description",
  "type",
  "enum",
  "pattern",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
  "minimum",
  "maximum",
  "required",
  "default",
];

const RULES: Readonly<Record<string, readonly { readonly rule: string; readonly message: string }[]>> = {
  "": [{ rule: "has(self.traffic) || has(self.backend)", message: "one of traffic, backend is needed" }],
  "traffic.rateLimit": [{ rule: "has(self.local) || has(self.global)", message: "one of local, global is needed" }],
  "traffic.rateLimit.local[]": [
    { rule: "has(self.requests) != has(self.tokens)", message: "exactly one of requests, tokens is needed" },
    { rule: "!has(self.burst) || has(self.requests)", message: "burst can only be used with requests" },
    { rule: "!has(self.reserveOutput) || has(self.tokens)", message: "reserveOutput can only be used with tokens" },
  ],
};

export function gatewayPolicyCrd(policies: readonly PolicyDefinition[]): Schema {
  const spec = z.toJSONSchema(specSchema(policies), {
    io: "input",
    unrepresentable: "any",
    reused: "inline",
  }) as Schema;
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
          additionalPrinterColumns: [
            column("Accepted", "Whether the policy is valid.", conditionPath("Accepted")),
            column("Attached", "Whether it is attached to its targets.", conditionPath("Attached")),
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
                spec: structural(spec, ""),
                status: STATUS,
              },
            },
          },
        },
      ],
    },
  };
}

function column(name: string, description: string, jsonPath: string): Schema {
  return { name, type: "string", description, jsonPath };
}

function conditionPath(type: string): string {
  return `.status.ancestors[0].conditions[?(@.type=="${type}")].status`;
}

function structural(schema: Schema, path: string): Schema {
  const union = [schema.anyOf, schema.oneOf].find(Array.isArray) as Schema[] | undefined;
  if (union) return { ...kept(schema), ...structuralUnion(union) };
  const { type } = schema;
  const rules = RULES[path] ? { "x-kubernetes-validations": RULES[path] } : {};
  if ("const" in schema) return { ...kept(schema), type: typeof schema.const, enum: [schema.const] };
  if (type === "object") {
    const { properties, additionalProperties } = schema;
    return {
      ...kept(schema),
      ...(isObject(properties)
        ? {
            properties: Object.fromEntries(
              Object.entries(properties).map(([name, field]) => [
                name,
                structural(field as Schema, path === "" ? name : `${path}.${name}`),
              ]),
            ),
          }
        : {}),
      // An API server takes either named fields or a map, not both.
      ...(isObject(additionalProperties) && isObject(properties) ? ANYTHING : {}),
      ...(isObject(additionalProperties) && !isObject(properties)
        ? { additionalProperties: structural(additionalProperties as Schema, `${path}.*`) }
        : {}),
      ...rules,
    };
  }
  if (type === "array")
    return { ...kept(schema), items: structural((schema.items ?? {}) as Schema, `${path}[]`), ...rules };
  if (type === "integer") return { ...kept(schema), format: "int64" };
  if (type !== undefined) return kept(schema);
  return { ...kept(schema), ...ANYTHING };
}

const ANYTHING = { "x-kubernetes-preserve-unknown-fields": true };

/** A choice between fixed values of one type stays a choice; any other union is checked by the gateway only. */
function structuralUnion(options: readonly Schema[]): Schema {
  const values = options.flatMap((option) =>
    "const" in option ? [option.const] : Array.isArray(option.enum) ? option.enum : [undefined],
  );
  const types = new Set(values.map((value) => typeof value));
  const [type] = types;
  if (types.size !== 1 || type === "undefined" || type === "object") return ANYTHING;
  return { type: type === "number" ? "integer" : type, enum: values };
}

function kept(schema: Schema): Schema {
  const result: Schema = {};
  // A default is given as the gateway holds it: a duration in milliseconds is not one that a document could write.
  const { default: value, ...rest } = schema;
  if (typeof value === "number" && schema.type === "string") return kept(rest);
  for (const keyword of KEPT)
    if (schema[keyword] !== undefined && !isSafeBound(schema[keyword])) result[keyword] = schema[keyword];
  return result;
}

/** "A whole number" is written as the range of exact doubles, which says nothing to a reader. */
function isSafeBound(value: unknown): boolean {
  return value === Number.MAX_SAFE_INTEGER || value === Number.MIN_SAFE_INTEGER;
}

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

const STATUS = {
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
        properties: {
          ancestorRef: REFERENCE,
          controllerName: { type: "string" },
          conditions: {
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
          },
        },
      },
    },
  },
};
