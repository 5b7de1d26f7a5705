/**
 * Writes the list of fields of the Gateway API's CustomResourceDefinitions that the field walk
 * (src/kubernetes/field-walk.test.ts) covers:
 *
 *   node scripts/kubernetes/crd-fields.mjs <folder with the CRDs>
 *
 * The folder is config/crd/experimental in the Go module sigs.k8s.io/gateway-api.
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

const folder = process.argv[2];
if (folder === undefined) throw new Error("usage: node scripts/kubernetes/crd-fields.mjs <folder>");
const kinds = {};
let version;
for (const plural of KINDS) {
  const crd = parse(readFileSync(join(folder, `gateway.networking.k8s.io_${plural}.yaml`), "utf8"));
  version = crd.metadata.annotations["gateway.networking.k8s.io/bundle-version"];
  const { schema } = crd.spec.versions.find(({ name }) => name === "v1");
  const fields = [...fieldsOf(schema.openAPIV3Schema.properties.spec, "spec")];
  kinds[crd.spec.names.kind] = fields.sort();
}
writeFileSync(FILE, `${JSON.stringify({ version, kinds }, undefined, 2)}\n`);
