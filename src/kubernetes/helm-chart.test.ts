import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { readDataPlaneConfig } from "../config/documents/data-plane-config.ts";

const folder = join(process.cwd(), "deploy/helm/gateway");
const values = parse(readFileSync(join(folder, "values.yaml"), "utf8")) as Record<string, unknown>;
const schema = JSON.parse(readFileSync(join(folder, "values.schema.json"), "utf8")) as {
  readonly additionalProperties: boolean;
  readonly properties: Readonly<Record<string, { readonly type: string; readonly pattern?: string }>>;
};

test("the schema of the chart has every value with its type and rejects others", () => {
  assert.equal(schema.additionalProperties, false);
  assert.deepEqual(Object.keys(schema.properties).sort(), [...Object.keys(values), "global"].sort());
  for (const [name, value] of Object.entries(values)) {
    const type = Array.isArray(value) ? "array" : typeof value === "number" ? "integer" : typeof value;
    assert.equal(schema.properties[name]?.type, type, name);
    const { pattern = "" } = schema.properties[name] ?? {};
    assert.match(String(value), new RegExp(pattern), name);
  }
});

test("the templates of the chart use every value, and no other", () => {
  const templates = join(folder, "templates");
  const texts = readdirSync(templates).map((file) => readFileSync(join(templates, file), "utf8"));
  const used = texts.flatMap((text) => [...text.matchAll(/\.Values\.(\w+)/g)].map(([, name]) => name));
  assert.deepEqual([...new Set(used)].sort(), Object.keys(values).sort());
});

test("the first ten lines of the values are Redis and PostgreSQL, which the parameters of the class use", () => {
  const lines = readFileSync(join(folder, "values.yaml"), "utf8").split("\n").slice(0, 10);
  assert.ok(lines.includes("redis:") && lines.includes("postgres:"), lines.join("\n"));
  const template = (file: string): string => readFileSync(join(folder, "templates", file), "utf8");
  // The values of an installation with Redis, as Helm replaces them.
  const rendered = template("parameters.yaml")
    .replace(/^ *\{\{- (?:if|end)[^}]*\}\}\n/gm, "")
    .replace(/\{\{ [^}]*\}\}/g, '"redis://value"');
  const { kind, spec } = parse(rendered);
  assert.equal(kind, "GatewayParameters");
  const { problems } = readDataPlaneConfig(spec.config, () => undefined);
  assert.deepEqual(problems, []);
  assert.match(template("gateway-class.yaml"), /parametersRef:/);
});

test("uninstalling the chart of the CRDs keeps them, and with them every policy", () => {
  const templates = join(process.cwd(), "deploy/helm/gateway-crds/templates");
  for (const file of readdirSync(templates)) {
    const { metadata } = parse(readFileSync(join(templates, file), "utf8"));
    assert.deepEqual(metadata.annotations, { "helm.sh/resource-policy": "keep" }, file);
  }
});
