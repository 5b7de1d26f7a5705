/**
 * Writes kubernetes/gatewaypolicy-crd.yaml from the schemas in src. `npm run generate` calls it; a test compares.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "./steps.mjs";

const { build } = await import("esbuild");
// Inside the project, so that the bundle finds the packages that it leaves outside.
const folder = mkdtempSync(join(root, "node_modules", ".crd-"));
try {
  const outfile = join(folder, "crd.mjs");
  await build({
    stdin: {
      contents: `export { crdManifest } from "./src/config/resources/crd-manifest.ts";`,
      resolveDir: root,
      loader: "ts",
    },
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    logLevel: "warning",
  });
  const { crdManifest } = await import(pathToFileURL(outfile).href);
  writeFileSync(join(root, "kubernetes", "gatewaypolicy-crd.yaml"), crdManifest());
} finally {
  rmSync(folder, { recursive: true, force: true });
}
