/**
 * Generates the CRD manifests in kubernetes/ from the Zod schemas. The gateway checks constraints that structural
 * schemas cannot express.
 */
import { stringify } from "yaml";
import { z } from "zod";
import type { PolicyDefinition } from "../../core/policy.ts";
import { exactlyOneOfFields, getLocalUse, isSecretSchema } from "../../core/schema.ts";
import { defined } from "../../json/json.ts";
import { policies } from "../../policies/index.ts";
import { isObject } from "../text/value-shapes.ts";
import { backendSpecSchema } from "./backend-document.ts";
import { POLICY_API_GROUP } from "./documents.ts";
import { PARAMETERS_KIND, parametersSchema } from "./gateway-parameters.ts";
import { partsOf, specSchema } from "./policy-spec.ts";

const HEADER = "# Generated from the schemas in src by `npm run generate`: do not edit.\n";

export function crdManifests(): Readonly<Record<string, string>> {
  return {
    "gatewaypolicy-crd.yaml": manifestOf(gatewayPolicyCrd(policies)),
    "backend-crd.yaml": manifestOf(backendCrd()),
    "gatewayparameters-crd.yaml": manifestOf(gatewayParametersCrd()),
  };
}

function manifestOf(crd: Schema): string {
  return HEADER + stringify(crd, { lineWidth: 120, aliasDuplicateObjects: false });
}

// Unknown fields and nulls are preserved, so that the gateway can report a misspelled setting.

export function backendCrd(): Schema {
  const condition = (field: string): string => `.status.conditions[?(@.type=="Accepted")].${field}`;
  return crdOf({
    kind: "Backend",
    plural: "backends",
    shortName: "gwbe",
    description: "MCP servers, an LLM provider or an HTTP server, for backendRefs of HTTPRoutes.",
    spec: structuralSchema(backendSpecSchema, { isOpen: () => true, extra: {} }),
    status: BACKEND_STATUS,
    columns: [
      column("Accepted", "Whether the backend is valid.", condition("status")),
      column("Message", "The reason if the backend is not valid.", condition("message")),
    ],
  });
}

export function gatewayParametersCrd(): Schema {
  return crdOf({
    kind: PARAMETERS_KIND,
    plural: "gatewayparameters",
    shortName: "gwparam",
    description: "Settings of the data planes of a GatewayClass or Gateway, for its parametersRef.",
    // Nothing fails open without these fields, so kubectl rejects a misspelled one, and the API server drops it.
    spec: structuralSchema(parametersSchema, { isOpen: () => false, extra: {} }),
  });
}

interface CrdParts {
  readonly kind: string;
  readonly plural: string;
  readonly shortName: string;
  readonly labels?: Schema;
  readonly description: string;
  readonly spec: Schema;
  readonly status?: Schema;
  readonly columns?: readonly Schema[];
}

function crdOf({ kind, plural, shortName, labels, description, spec, status, columns }: CrdParts): Schema {
  const age = { ...column("Age", "Time since creation.", ".metadata.creationTimestamp"), type: "date" };
  const object = { type: "object" };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${POLICY_API_GROUP}`, ...defined({ labels }) },
    spec: {
      group: POLICY_API_GROUP,
      names: { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase(), shortNames: [shortName] },
      scope: "Namespaced",
      versions: [
        {
          name: "v1alpha1",
          served: true,
          storage: true,
          ...(status && { subresources: { status: {} } }),
          ...(columns && { additionalPrinterColumns: [...columns, age] }),
          schema: {
            openAPIV3Schema: {
              description,
              ...object,
              required: ["spec"],
              properties: {
                apiVersion: { type: "string" },
                kind: { type: "string" },
                metadata: object,
                spec,
                ...defined({ status }),
              },
            },
          },
        },
      ],
    },
  };
}

/** Unknown fields and nulls are preserved at these paths, so that the gateway can report them. */
const OPEN = new Set(["", "traffic", "backend", "backend.mcp", "targetRefs[]", "targetSelectors[]"]);

const EXTRA: StructuralOptions["extra"] = {
  "": validations(
    { rule: "has(self.traffic) || has(self.backend)", message: "one of traffic, backend is required" },
    {
      rule: "has(self.targetRefs) || has(self.targetSelectors)",
      message: "one of targetRefs, targetSelectors is required",
    },
  ),
  traffic: { minProperties: 1 },
  backend: { minProperties: 1 },
  "backend.mcp": { minProperties: 1 },
  "backend.mcp.authentication.provider": { maxProperties: 1, minProperties: 1 },
  // The field is declared only so that it can be rejected: without it, the reference would mean another object.
  "targetRefs[]": {
    properties: { namespace: { type: "string" } },
    ...validations({
      rule: "!has(self.namespace)",
      message: "a policy applies only to targets in its own namespace",
    }),
  },
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
  return crdOf({
    kind: "GatewayPolicy",
    plural: "gatewaypolicies",
    shortName: "gwpol",
    labels: { "gateway.networking.k8s.io/policy": "Direct" },
    description:
      "Policies for the traffic and backends of Gateways and HTTPRoutes: limits, authentication, authorization and more.",
    spec: structuralSchema(specSchema(policies), { isOpen, extra: EXTRA }),
    status: POLICY_STATUS,
    // These columns show the first ancestor.
    columns: [
      column("Accepted", "Whether the policy is valid, for all its targets.", conditionPath("Accepted", "status")),
      column("Attached", "Whether the policy is attached to all its targets.", conditionPath("Attached", "status")),
      column("Reason", "The reason for the status.", conditionPath("Attached", "reason")),
    ],
  });
}

function after(path: string, above: string): string {
  return path.startsWith(above) ? path.slice(above.length) : "";
}

function column(name: string, description: string, jsonPath: string): Schema {
  return { name, type: "string", description, jsonPath };
}

function conditionPath(type: string, field: string): string {
  return `.status.ancestors[0].conditions[?(@.type=="${type}")].${field}`;
}

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
  description: "Whether the policy was accepted and attached, for every Gateway that it reaches.",
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

export type Schema = Record<string, unknown>;

export interface Rule {
  readonly rule: string;
  readonly message: string;
}

export interface StructuralOptions {
  /** Returns whether unknown fields and nulls at this path must be preserved. */
  isOpen(path: string): boolean;
  /** Maps paths to additional keywords of the object, for example validation rules. */
  readonly extra: Readonly<Record<string, Schema>>;
}

/** These keywords are copied from the JSON Schema to the structural schema. */
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

export const ANYTHING = { "x-kubernetes-preserve-unknown-fields": true };

const SECRET_REF = {
  type: "object",
  required: ["secretRef"],
  properties: {
    secretRef: {
      description: "A key of a Secret. A Secret in another namespace requires a ReferenceGrant in that namespace.",
      type: "object",
      required: ["name", "key"],
      properties: {
        name: { type: "string", minLength: 1, maxLength: 253 },
        namespace: { type: "string", minLength: 1, maxLength: 63 },
        key: { type: "string", minLength: 1, maxLength: 253 },
      },
    },
  },
};

export function structuralSchema(schema: z.ZodType, options: StructuralOptions): Schema {
  const json = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    reused: "inline",
    override({ zodSchema, jsonSchema }) {
      const own = zodSchema as unknown as z.ZodType;
      const local = getLocalUse(own);
      const exactlyOne = exactlyOneOfFields(own);
      const fields = jsonSchema as Schema;
      if (isSecretSchema(own)) fields.isSecret = true;
      if (local?.isReadable) fields.isReadable = true;
      else if (local && !local.isLocal) fields.isLocal = true;
      if (exactlyOne) fields.exactlyOne = exactlyOne;
    },
  }) as Schema;
  return structural(json, "", options);
}

function structural(schema: Schema, path: string, options: StructuralOptions): Schema {
  const { type } = schema;
  const extra: Schema = {
    ...(options.isOpen(path) && path !== "" && !path.endsWith("[]") ? { nullable: true } : {}),
    ...options.extra[path],
  };
  // A field that accepts a string or a reference has no structural type.
  if (schema.isSecret === true) return { ...described(schema, "A string or `{secretRef}`."), ...ANYTHING, ...extra };
  if (schema.isReadable === true) return { ...described(schema, ""), ...SECRET_REF, ...extra };
  const union = [schema.anyOf, schema.oneOf].find(Array.isArray) as Schema[] | undefined;
  if (union) return { ...kept(schema), ...structuralUnion(union), ...extra };
  if ("const" in schema) return { ...kept(schema), type: typeof schema.const, enum: [schema.const], ...extra };
  if (type === "object") {
    const own = objectSchema(schema, path, options);
    if (!("properties" in extra)) return { ...own, ...extra };
    return { ...own, ...extra, properties: { ...(own.properties as Schema), ...(extra.properties as Schema) } };
  }
  if (type === "array")
    return { ...kept(schema), items: structural((schema.items ?? {}) as Schema, `${path}[]`, options), ...extra };
  if (type === "integer") return { ...kept(schema), format: "int64", ...extra };
  if (type !== undefined) return { ...kept(schema), ...extra };
  return { ...kept(schema), ...ANYTHING, ...extra };
}

function objectSchema(schema: Schema, path: string, options: StructuralOptions): Schema {
  const { additionalProperties } = schema;
  const named = isObject(schema.properties)
    ? Object.entries(schema.properties as Record<string, Schema>).filter(([, field]) => field.isLocal !== true)
    : undefined;
  const below = (name: string): string => (path === "" ? name : `${path}.${name}`);
  const properties =
    named && Object.fromEntries(named.map(([name, field]) => [name, structural(field, below(name), options)]));
  // A structural schema allows either named fields or a map, but not both.
  const isMap = isObject(additionalProperties);
  return {
    ...kept(schema),
    ...(properties ? { properties } : {}),
    ...((isMap && properties) || (options.isOpen(path) && !isMap) ? ANYTHING : {}),
    ...(isMap && !properties
      ? { additionalProperties: structural(additionalProperties as Schema, `${path}.*`, options) }
      : {}),
    ...(properties ? choice(schema.exactlyOne, properties) : {}),
  };
}

/**
 * Uses a validation rule for two typed fields, because the API server's cost limit rejects larger rules inside lists.
 */
function choice(exactlyOne: unknown, properties: Readonly<Record<string, Schema>>): Schema {
  if (!Array.isArray(exactlyOne)) return {};
  const names = (exactlyOne as string[]).filter((name) => Object.hasOwn(properties, name));
  if (names.length < 2) return names.length === 0 ? {} : { required: names };
  if (names.length > 2 || names.some((name) => properties[name]?.type === undefined))
    return { oneOf: names.map((name) => ({ required: [name] })) };
  const rule = names.map((name) => `has(self.${name})`).join(" != ");
  return validations({ rule, message: `exactly one of ${names.join(", ")} is required` });
}

export function validations(...rules: readonly Rule[]): Schema {
  return { "x-kubernetes-validations": rules };
}

/** An enumeration of values of one type is preserved. Only the gateway checks other unions. */
function structuralUnion(options: readonly Schema[]): Schema {
  const values = options.flatMap((option) =>
    "const" in option ? [option.const] : Array.isArray(option.enum) ? option.enum : [undefined],
  );
  const types = new Set(values.map((value) => typeof value));
  const [type] = types;
  if (types.size !== 1 || type === "undefined" || type === "object") return ANYTHING;
  return { type: type === "number" ? "integer" : type, enum: values };
}

function described({ description }: Schema, more: string): Schema {
  const text = [description, more].filter((one) => typeof one === "string" && one !== "").join(" ");
  return text === "" ? {} : { description: text };
}

function kept(schema: Schema): Schema {
  const result: Schema = {};
  // Omits defaults that differ from the written form, for example durations in milliseconds.
  const { default: value, ...rest } = schema;
  if (typeof value === "number" && schema.type === "string") return kept(rest);
  for (const keyword of KEPT)
    if (schema[keyword] !== undefined && !isSafeBound(schema[keyword])) result[keyword] = schema[keyword];
  return result;
}

/** The bounds of safe integers come from the schema library and are not limits of the field. */
function isSafeBound(value: unknown): boolean {
  return value === Number.MAX_SAFE_INTEGER || value === Number.MIN_SAFE_INTEGER;
}
