import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { policies } from "../../policies/index.ts";
import { rateLimit } from "../../policies/rate-limit/policy.ts";
import { backendCrd, crdManifests, gatewayPolicyCrd } from "./crd-manifest.ts";

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

test("the manifests in kubernetes/ are what the schemas say (npm run generate)", () => {
  const manifests = Object.entries(crdManifests());
  assert.equal(manifests.length, 3);
  for (const [file, text] of manifests) assert.equal(readFileSync(`kubernetes/${file}`, "utf8"), text);
});

test("limits are described field for field, with rules for what spans fields", () => {
  const local = specOf(gatewayPolicyCrd([rateLimit])).properties?.traffic?.properties?.rateLimit?.properties?.local;
  assert.equal(local?.maxItems, 16);
  const { properties = {}, required, ...rest } = local?.items ?? {};
  assert.deepEqual(Object.keys(properties).sort(), [
    "burst",
    "key",
    "mode",
    "requests",
    "reserveOutput",
    "tokens",
    "unit",
  ]);
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
    if (schema.oneOf)
      for (const option of schema.oneOf as Schema[]) assert.deepEqual(Object.keys(option), ["required"], path);
    for (const keyword of ["anyOf", "const", "$ref", "$schema", "propertyNames"])
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
  visit(specOf(backendCrd()), "spec");
});

/** Every object and field below a part, with its path. */
function* schemasBelow(schema: Schema, path: string): Generator<[string, Schema]> {
  yield [path, schema];
  for (const [name, field] of Object.entries(schema.properties ?? {})) yield* schemasBelow(field, `${path}.${name}`);
  if (schema.items) yield* schemasBelow(schema.items, `${path}[]`);
}

test("unknown fields and nulls in anything that protects reach the gateway", () => {
  const { traffic, backend, targetRefs } = specOf(gatewayPolicyCrd(policies)).properties ?? {};
  const open = [traffic, backend, backend?.properties?.mcp, targetRefs?.items, specOf(gatewayPolicyCrd(policies))];
  for (const schema of open) assert.equal(schema?.["x-kubernetes-preserve-unknown-fields"], true);
  const parts = [
    ...["jwtAuthentication", "apiKeyAuthentication", "basicAuthentication", "authorization"].map(
      (name) => traffic?.properties?.[name],
    ),
    ...["authentication", "authorization"].map((name) => backend?.properties?.mcp?.properties?.[name]),
  ];
  for (const part of parts)
    for (const [path, schema] of schemasBelow(part ?? {}, "part")) {
      if (schema.type === "object" && !schema.additionalProperties)
        assert.equal(schema["x-kubernetes-preserve-unknown-fields"], true, `${path} drops unknown fields`);
      if (!path.endsWith("[]")) assert.equal(schema.nullable, true, `${path} drops null`);
    }
});

test("no field of a cluster's policy names a file", () => {
  for (const [path, schema] of schemasBelow(specOf(gatewayPolicyCrd(policies)), "spec")) {
    if (schema.type !== "string") continue;
    assert.doesNotMatch(path, /(?:file|File|\.root|backendTLS\.cert|backendTLS\.key)$/);
  }
  const { properties } = specOf(gatewayPolicyCrd(policies)).properties?.traffic?.properties?.backendTLS ?? {};
  assert.deepEqual(properties?.root?.required, ["secretRef"]);
});

test("a choice between fields is a rule, or the plain keyword where a field has no type", () => {
  const traffic = specOf(gatewayPolicyCrd(policies)).properties?.traffic?.properties ?? {};
  assert.deepEqual(
    traffic.backendAuth?.oneOf,
    ["passthrough", "key", "oauth", "crossAppAccess", "jwtSign", "aws", "google", "azure"].map((field) => ({
      required: [field],
    })),
  );
  assert.deepEqual(traffic.urlRewrite?.properties?.path?.["x-kubernetes-validations"], [
    {
      rule: "has(self.full) != has(self.prefix)",
      message: "exactly one of full, prefix is required",
    },
  ]);
});

test("a Backend has what backends[] have, without processes and files, and lets every unknown field and null through", () => {
  const spec = specOf(backendCrd());
  assert.deepEqual(Object.keys(spec.properties ?? {}).sort(), ["ai", "host", "mcp", "protocol"]);
  const target = spec.properties?.mcp?.properties?.targets?.items;
  assert.ok(target?.properties?.mcp?.properties?.url);
  assert.ok(!("stdio" in (target?.properties ?? {})), "a process");
  for (const [path, schema] of schemasBelow(spec, "spec")) {
    if (schema.type !== "object" || schema.additionalProperties || path.endsWith("secretRef")) continue;
    if (schema.properties && "secretRef" in schema.properties) continue;
    assert.equal(schema["x-kubernetes-preserve-unknown-fields"], true, path);
    if (path !== "spec" && !path.endsWith("[]")) assert.equal(schema.nullable, true, path);
  }
});
