/**
 * Walks every field of the CustomResourceDefinitions of this gateway. The validation knows each field of a CRD, and the
 * API server keeps each field that the validation knows; otherwise it would drop the field without a condition.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import type { z } from "zod";
import { backendSpecSchema } from "../config/documents/backend-document.ts";
import { parametersSchema } from "../config/documents/gateway-parameters.ts";
import { specSchema } from "../config/documents/policy-spec.ts";
import { below, knownKeys, schemaAt, unwrap } from "../config/schema/schema-walk.ts";
import { getLocalUse } from "../core/schema.ts";
import { policies } from "../policies/index.ts";

interface CrdSchema {
  readonly properties?: Readonly<Record<string, CrdSchema>>;
  readonly items?: CrdSchema;
  readonly additionalProperties?: CrdSchema | boolean;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
}

function crdSpec(file: string): CrdSchema {
  const crd = parse(readFileSync(join(process.cwd(), "kubernetes", file), "utf8"));
  return crd.spec.versions[0].schema.openAPIV3Schema.properties.spec as CrdSchema;
}

function* crdFields(schema: CrdSchema, path: readonly string[] = []): Iterable<readonly string[]> {
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    // `secretRef` replaces the value of its parent field.
    if (name === "secretRef") continue;
    yield [...path, name];
    yield* crdFields(inner, [...path, name]);
  }
  if (schema.items) yield* crdFields(schema.items, [...path, "0"]);
  if (typeof schema.additionalProperties === "object") yield* crdFields(schema.additionalProperties, [...path, "any"]);
}

/** Yields the fields that the API server would drop. */
function* droppedFields(
  schemas: readonly z.ZodType[],
  crd: CrdSchema | undefined,
  path: readonly string[] = [],
): Iterable<string> {
  if (crd === undefined) {
    yield path.join(".");
    return;
  }
  if (crd["x-kubernetes-preserve-unknown-fields"] === true && crd.properties === undefined) return;
  for (const name of new Set(knownKeys(schemas))) {
    const inner = below(schemas, name);
    const marked = schemas.flatMap((one) => ("shape" in one ? [(one.shape as Record<string, z.ZodType>)[name]] : []));
    // The CRD leaves out files and processes, which a cluster cannot name.
    const isLocal = [...inner, ...marked].some((one) => one !== undefined && getLocalUse(one) !== undefined);
    const isKept = crd["x-kubernetes-preserve-unknown-fields"] === true;
    const next = crd.properties?.[name];
    if (next !== undefined || !(isLocal || isKept)) yield* droppedFields(inner, next, [...path, name]);
  }
  const elements = below(
    schemas.filter((one) => !("shape" in one)),
    0,
  );
  const element = crd.items ?? (typeof crd.additionalProperties === "object" ? crd.additionalProperties : undefined);
  if (elements.length > 0 && element !== undefined) yield* droppedFields(elements, element, [...path, "[]"]);
}

/** The API server rejects objects with these fields, which it can check only if they are declared. */
const REJECTED = ["targetRefs.0.namespace"];

for (const [kind, file, schema, fewest] of [
  ["GatewayPolicy", "gatewaypolicy-crd.yaml", specSchema(policies), 150],
  ["Backend", "backend-crd.yaml", backendSpecSchema, 150],
  ["GatewayParameters", "gatewayparameters-crd.yaml", parametersSchema, 15],
] as const)
  test(`the validation and the API server have the same fields of ${kind}`, () => {
    const fields = [...crdFields(crdSpec(file))];
    assert.ok(fields.length > fewest, `only ${fields.length} fields`);
    const unknown = fields.filter((path) => schemaAt(schema, path).length === 0);
    assert.deepEqual(
      unknown.map((path) => path.join(".")).filter((path) => !REJECTED.includes(path)),
      [],
      "fields of the CRD that the validation does not know",
    );
    assert.deepEqual([...droppedFields(unwrap(schema), crdSpec(file))], [], "fields that the API server drops");
  });
