/**
 * Defines the parts of a GatewayPolicy spec, derived from the list of policies.
 */

import { z } from "zod";
import { lookupTable } from "../../base/lookup-table.ts";
import type { PolicyDefinition } from "../../core/policy.ts";
import { duration } from "../../core/schema.ts";
import { defined } from "../../json/json.ts";
import type { Path } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP } from "./documents.ts";

export interface Part {
  readonly field: readonly string[];
  readonly schema: z.ZodType;
  readonly doc: string;
  readonly isSecurity: boolean;
  readonly entries?: PolicyDefinition["entries"];
  toPolicies(value: unknown): readonly { readonly definition: PolicyDefinition; readonly written: unknown }[];
}

/** These names differ from the standalone configuration. */
const FIELDS = lookupTable<readonly string[]>({
  jwtAuth: ["traffic", "jwtAuthentication"],
  apiKey: ["traffic", "apiKeyAuthentication"],
  basicAuth: ["traffic", "basicAuthentication"],
  mcpAuthentication: ["backend", "mcp", "authentication"],
  mcpAuthorization: ["backend", "mcp", "authorization"],
  mcpGuardrails: ["backend", "mcp", "guardrails"],
});

const TIMEOUTS = z.strictObject({
  request: duration()
    .optional()
    .describe("The time from the arrival of the request to the response headers, over all attempts."),
  backendRequest: duration().optional().describe("The same limit for each attempt."),
});

/** The parts are cached per list of policies, because a cluster may have thousands of documents. */
const madeParts = new WeakMap<readonly PolicyDefinition[], readonly Part[]>();
const madeSchemas = new WeakMap<readonly PolicyDefinition[], ReturnType<typeof createSpecSchema>>();

export function partsOf(policies: readonly PolicyDefinition[]): readonly Part[] {
  let parts = madeParts.get(policies);
  if (parts === undefined) {
    parts = createParts(policies);
    madeParts.set(policies, parts);
  }
  return parts;
}

export function specSchema(policies: readonly PolicyDefinition[]): ReturnType<typeof createSpecSchema> {
  let schema = madeSchemas.get(policies);
  if (schema === undefined) {
    schema = createSpecSchema(policies);
    madeSchemas.set(policies, schema);
  }
  return schema;
}

function createParts(policies: readonly PolicyDefinition[]): Part[] {
  const parts: Part[] = [];
  const find = (kind: string): PolicyDefinition | undefined => policies.find((policy) => policy.kind === kind);
  const timeout = find("timeout");
  const requestHeaders = find("requestHeaderModifier");
  const responseHeaders = find("responseHeaderModifier");

  for (const definition of policies) {
    if (definition === timeout || definition === requestHeaders || definition === responseHeaders) continue;
    if (!definition.scopes.includes("gateway") && !definition.scopes.includes("route")) continue;
    parts.push({
      field: FIELDS[definition.kind] ?? ["traffic", definition.kind],
      schema: definition.schema,
      doc: definition.doc,
      isSecurity: definition.role === "security",
      ...defined({ entries: definition.entries }),
      toPolicies: (written) => [{ definition, written }],
    });
  }
  if (timeout) {
    parts.push({
      field: ["traffic", "timeouts"],
      schema: TIMEOUTS,
      doc: timeout.doc,
      isSecurity: false,
      toPolicies(value) {
        const { request, backendRequest } = value as { request?: string; backendRequest?: string };
        const written = {
          ...defined({ requestTimeout: request, backendRequestTimeout: backendRequest }),
        };
        return [{ definition: timeout, written }];
      },
    });
  }
  if (requestHeaders && responseHeaders) {
    parts.push({
      field: ["traffic", "headerModifiers"],
      schema: z.strictObject({
        request: requestHeaders.schema.optional().describe(requestHeaders.doc),
        response: responseHeaders.schema.optional().describe(responseHeaders.doc),
      }),
      doc: "Adds, sets and removes request and response headers.",
      isSecurity: false,
      toPolicies(value) {
        const { request, response } = value as { request?: unknown; response?: unknown };
        return [
          ...(request === undefined ? [] : [{ definition: requestHeaders, written: request }]),
          ...(response === undefined ? [] : [{ definition: responseHeaders, written: response }]),
        ];
      },
    });
  }
  return parts;
}

/** These policy kinds may occur several times on a target. */
export const STACKING_KINDS: ReadonlySet<string> = new Set([
  "rateLimit",
  "budgets",
  "authorization",
  "requestHeaderModifier",
  "responseHeaderModifier",
  "transformations",
]);

export const TARGET_KINDS = ["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "Service", "Backend"] as const;

export function groupOfTarget(kind: string): string {
  if (kind === "Service") return "";
  return kind === "Backend" ? POLICY_API_GROUP : GATEWAY_API_GROUP;
}

const targetGroup = () =>
  z
    .enum([GATEWAY_API_GROUP, POLICY_API_GROUP, ""])
    .describe(
      "The group of the kind: `gateway.networking.k8s.io`, `policy.gateway.internal` for Backends, or empty for Services.",
    );

const targetRef = z.strictObject({
  group: targetGroup(),
  kind: z.enum(TARGET_KINDS).describe("The kind of the target."),
  name: z.string().min(1).max(253).describe("The name of the target, in the policy's namespace."),
  sectionName: z
    .string()
    .min(1)
    .max(253)
    .optional()
    .describe(
      "One listener of the Gateway or ListenerSet, one named rule of the route, or one named port of the Service.",
    ),
});

export const targetSelectorSchema = z
  .strictObject({
    group: targetGroup(),
    kind: z.enum(TARGET_KINDS).describe("The kind of the targets."),
    matchLabels: z
      .record(z.string(), z.string())
      .optional()
      .describe("Labels with their values. The target must have all of them."),
    matchExpressions: z
      .array(
        z
          .strictObject({
            key: z.string().min(1).describe("The label."),
            operator: z.enum(["In", "NotIn", "Exists", "DoesNotExist"]).describe("The condition."),
            values: z.array(z.string()).optional().describe("The values, only for `In` and `NotIn`."),
          })
          .refine(
            ({ operator, values = [] }) => (operator === "In" || operator === "NotIn") === values.length > 0,
            "`values` are required for `In` and `NotIn` only",
          ),
      )
      .optional()
      .describe("Conditions for labels. The target must meet all of them."),
  })
  .refine(({ group, kind }) => group === groupOfTarget(kind), "`group` is not the group of `kind`")
  .refine(
    ({ matchLabels = {}, matchExpressions = [] }) => Object.keys(matchLabels).length + matchExpressions.length > 0,
    "one of `matchLabels`, `matchExpressions` is required",
  );

function createSpecSchema(policies: readonly PolicyDefinition[]) {
  const below = (...field: string[]) =>
    Object.fromEntries(
      partsOf(policies)
        .filter((part) => part.field.length === field.length + 1 && field.every((name, i) => part.field[i] === name))
        .map((part) => [part.field.at(-1) as string, part.schema.optional().describe(part.doc)]),
    );
  return z
    .strictObject({
      targetRefs: z
        .array(targetRef)
        .min(1)
        .max(16)
        .optional()
        .describe(
          "The targets of the policy. Each target has its own rate limits; `budgets` with equal names share their spending in the whole namespace.",
        ),
      targetSelectors: z
        .array(targetSelectorSchema)
        .min(1)
        .max(16)
        .optional()
        .describe("More targets, selected by their labels in the policy's namespace. Each has its own rate limits."),
      traffic: z.strictObject(below("traffic")).optional().describe("Policies for the requests of the targets."),
      backend: z
        .strictObject({
          mcp: z.strictObject(below("backend", "mcp")).optional().describe("Policies for MCP backends."),
        })
        .optional()
        .describe("Policies for the backends of the targets."),
    })
    .refine(
      (spec) => spec.traffic !== undefined || spec.backend !== undefined,
      "one of `traffic`, `backend` is required",
    )
    .refine(
      (spec) => spec.targetRefs !== undefined || spec.targetSelectors !== undefined,
      "one of `targetRefs`, `targetSelectors` is required",
    );
}

export interface FoundPart {
  readonly part: Part;
  readonly path: Path;
  readonly value: unknown;
}

export interface UnknownField {
  readonly path: Path;
  readonly value: unknown;
  readonly known: readonly string[];
}

const TARGET_FIELDS = ["targetRefs", "targetSelectors"];

export function findParts(
  spec: Readonly<Record<string, unknown>>,
  parts: readonly Part[],
): { found: FoundPart[]; unknown: UnknownField[] } {
  const found: FoundPart[] = [];
  const unknown: UnknownField[] = [];
  const inner = new Set(["traffic", "backend", "backend.mcp"]);

  function walk(object: Readonly<Record<string, unknown>>, above: readonly string[]): void {
    for (const [name, value] of Object.entries(object)) {
      const field = [...above, name];
      if (above.length === 0 && TARGET_FIELDS.includes(name)) continue;
      const part = parts.find((one) => one.field.join(".") === field.join("."));
      if (part) found.push({ part, path: ["spec", ...field], value });
      else if (inner.has(field.join(".")) && isObject(value)) walk(value, field);
      else unknown.push({ path: ["spec", ...field], value, known: knownBelow(above) });
    }
  }

  function knownBelow(above: readonly string[]): string[] {
    const names = parts
      .filter(({ field }) => above.every((name, i) => field[i] === name))
      .map(({ field }) => field[above.length] as string);
    return [...new Set(above.length === 0 ? [...TARGET_FIELDS, ...names] : names)];
  }

  walk(spec, []);
  return { found, unknown };
}
