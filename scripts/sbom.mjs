/**
 * Writes a software bill of materials (CycloneDX 1.6) of the bundles: every package whose code is in them, with its
 * version and license. The bundler's metafile names the packages, because scanners cannot see them in a bundle.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./steps.mjs";

/** @param {readonly string[]} folders the packages, from `bundledPackages` */
export function sbom(folders) {
  const { name, version, license, description } = manifest(root);
  const own = {
    type: "application",
    "bom-ref": purl(name, version),
    name,
    version,
    description,
    purl: purl(name, version),
  };
  const byRef = new Map(
    folders.map((folder) => component(manifest(join(root, folder)))).map((one) => [one["bom-ref"], one]),
  );
  const components = [...byRef.values()].sort((a, b) => (a["bom-ref"] < b["bom-ref"] ? -1 : 1));
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: serialNumber([version, ...byRef.keys()]),
    version: 1,
    metadata: {
      lifecycles: [{ phase: "build" }],
      component: { ...own, licenses: licenses(license) },
    },
    components,
    dependencies: [
      { ref: own["bom-ref"], dependsOn: components.map((one) => one["bom-ref"]) },
      ...components.map((one) => ({ ref: one["bom-ref"] })),
    ],
  };
}

function manifest(folder) {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

function component({ name, version, license }) {
  const [group, short] = name.startsWith("@") ? name.split("/") : [undefined, name];
  return {
    type: "library",
    "bom-ref": purl(name, version),
    ...(group === undefined ? {} : { group }),
    name: short,
    version,
    licenses: licenses(license),
    purl: purl(name, version),
  };
}

function licenses(license) {
  return [/ (?:AND|OR) /.test(license) ? { expression: license } : { license: { id: license } }];
}

function purl(name, version) {
  return `pkg:npm/${name.replace(/^@/, "%40")}@${version}`;
}

/** The same contents have the same number, so that a build can be repeated. */
function serialNumber(contents) {
  const hex = createHash("sha256").update(contents.sort().join("\n")).digest("hex");
  const variant = "89ab"[Number.parseInt(hex[16], 16) % 4];
  return `urn:uuid:${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
