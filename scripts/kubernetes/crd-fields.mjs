/**
 * Writes the list of fields of the Gateway API's and its Inference Extension's CustomResourceDefinitions that the field
 * walk (src/kubernetes/field-walk.test.ts) covers:
 *
 *   node scripts/kubernetes/crd-fields.mjs <Gateway API> <Inference Extension>
 *
 * The folders are config/crd/experimental in the Go module sigs.k8s.io/gateway-api, and config/crd/bases in
 * sigs.k8s.io/gateway-api-inference-extension.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";

const KINDS = [
  "gatewayclasses",
  "gateways",
  "listenersets",
  "httproutes",
  "grpcroutes",
  "tlsroutes",
  "tcproutes",
  "backendtlspolicies",
];
const FILE = new URL("../../test/support/kubernetes/crd-fields.json", import.meta.url);

/** Yields the paths of all values; `[]` is an item of a list and `{}` a value of a map. */
function* fieldsOf(schema, path) {
  if (schema.properties) {
    for (const [name, inner] of Object.entries(schema.properties)) yield* fieldsOf(inner, `${path}.${name}`);
  } else if (schema.type === "array") yield* fieldsOf(schema.items, `${path}[]`);
  else if (schema.additionalProperties) yield `${path}{}`;
  else yield path;
}

const [gatewayFolder, inferenceFolder] = process.argv.slice(2);
if (inferenceFolder === undefined)
  throw new Error("usage: node scripts/kubernetes/crd-fields.mjs <Gateway API> <Inference Extension>");
const kinds = {};
const versions = {};
const files = [
  ...KINDS.map((plural) => join(gatewayFolder, `gateway.networking.k8s.io_${plural}.yaml`)),
  join(inferenceFolder, "inference.networking.k8s.io_inferencepools.yaml"),
];
for (const file of files) {
  const crd = parse(readFileSync(file, "utf8"));
  for (const [name, version] of Object.entries(crd.metadata.annotations))
    if (name.endsWith("/bundle-version")) versions[name.replace("/bundle-version", "")] = version;
  const { schema } = crd.spec.versions.find(({ name }) => name === "v1");
  const fields = [...fieldsOf(schema.openAPIV3Schema.properties.spec, "spec")];
  kinds[crd.spec.names.kind] = fields.sort();
}
writeFileSync(FILE, `${JSON.stringify({ versions, kinds }, undefined, 2)}\n`);
