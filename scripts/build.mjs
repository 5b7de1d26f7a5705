/**
 * Bundles the two binaries into dist/. They are bundled because loading hundreds of small modules takes longer than the
 * gateway needs to start, and split so that large parts are loaded on demand.
 */
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { build } from "esbuild";
import { inputsHash, stampBuild } from "./build-stamp.mjs";
import { bundleOptions } from "./bundle.mjs";
import { leanHttp } from "./lean-http.mjs";
import { inlineOnDemand, onDemandEntryPoints, splitOnDemand } from "./on-demand.mjs";
import { packDocs } from "./pack-docs.mjs";
import { sbom } from "./sbom.mjs";
import { fewStartFiles } from "./start-file.mjs";
import { root } from "./steps.mjs";
import { bundledPackages, thirdPartyText } from "./third-party.mjs";

/** Another folder may be named, so that a build to look at does not disturb a running one. */
const out = process.argv[2] ?? "dist";

// Before anything is read: what changes while it builds is built next time.
const builtFrom = inputsHash();
rmSync(resolve(root, out), { recursive: true, force: true });
const { metafile } = await build({
  ...bundleOptions,
  plugins: [
    leanHttp,
    fewStartFiles,
    ...bundleOptions.plugins.map((plugin) => (plugin === inlineOnDemand ? splitOnDemand : plugin)),
  ],
  entryPoints: {
    gateway: "src/bin/gateway.ts",
    gwctl: "src/bin/gwctl.ts",
    thread: "src/bin/thread.ts",
    "demo-mcp-server": "src/demo/mcp-server.ts",
    "rehearsal-process": "src/app/rehearsal/rehearsal-process.ts",
    "password-worker": "src/identity/passwords/password-worker.ts",
    "description-worker": "src/mcp/openapi/description-worker.ts",
    "history-worker": "src/record/history/history-worker.ts",
    ...onDemandEntryPoints(),
  },
  outdir: out,
  splitting: true,
  sourcemap: "linked",
  sourcesContent: false,
  // CommonJS libraries load Node's built-in modules through `require`.
  banner: {
    js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
  },
});
for (const name of ["gateway.js", "gwctl.js"]) chmodSync(resolve(root, out, name), 0o755);
if (out === "dist") {
  const { metafiles } = await import("./build-ui.mjs");
  const packages = bundledPackages(metafile, ...metafiles);
  writeFileSync(resolve(root, out, "THIRD-PARTY-LICENSES.txt"), thirdPartyText(packages));
  writeFileSync(resolve(root, out, "sbom.cdx.json"), `${JSON.stringify(sbom(packages), null, 2)}\n`);
  packDocs();
  stampBuild(builtFrom);
}
