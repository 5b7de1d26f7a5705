import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";

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
    const type = typeof value === "number" ? "integer" : typeof value;
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
