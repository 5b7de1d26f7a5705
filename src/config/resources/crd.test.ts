import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { policies } from "../../policies/index.ts";
import { rateLimit } from "../../policies/rate-limit/policy.ts";
import { gatewayPolicyCrd } from "./crd.ts";
import { crdManifest } from "./crd-manifest.ts";

type Schema = {
  [key: string]: unknown;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema;
};

function specOf(crd: Record<string, unknown>): Schema {
  const { versions } = crd.spec as { versions: [{ schema: { openAPIV3Schema: Schema } }] };
  return versions[0].schema.openAPIV3Schema.properties?.spec as Schema;
}

test("the manifest in kubernetes/ is what the schemas say (npm run generate)", () => {
  assert.equal(readFileSync("kubernetes/gatewaypolicy-crd.yaml", "utf8"), crdManifest());
});

test("limits are described field for field, with rules for what spans fields", () => {
  const local = specOf(gatewayPolicyCrd([rateLimit])).properties?.traffic?.properties?.rateLimit?.properties?.local;
  assert.equal(local?.maxItems, 16);
  const { properties = {}, required, ...rest } = local?.items ?? {};
  assert.deepEqual(Object.keys(properties).sort(), ["burst", "key", "requests", "reserveOutput", "tokens", "unit"]);
  assert.deepEqual(required, ["unit"]);
  assert.deepEqual(properties.unit?.enum, ["Seconds", "Minutes", "Hours"]);
  assert.equal(properties.requests?.minimum, 1);
  assert.equal((rest["x-kubernetes-validations"] as unknown[]).length, 3);
});

test("every part of the schema is structural", () => {
  const visit = (schema: Schema, path: string): void => {
    assert.ok(
      schema.type !== undefined || schema["x-kubernetes-preserve-unknown-fields"] === true,
      `${path} has no type`,
    );
    for (const keyword of ["anyOf", "oneOf", "const", "$ref", "$schema", "propertyNames"])
      assert.ok(!(keyword in schema), `${path} has ${keyword}`);
    assert.ok(
      !(schema.properties && schema.additionalProperties),
      `${path} has both properties and additionalProperties`,
    );
    for (const [name, field] of Object.entries(schema.properties ?? {})) visit(field, `${path}.${name}`);
    if (schema.items) visit(schema.items, `${path}[]`);
    if (schema.additionalProperties) visit(schema.additionalProperties, `${path}.*`);
  };
  visit(specOf(gatewayPolicyCrd([...policies, rateLimit])), "spec");
});
