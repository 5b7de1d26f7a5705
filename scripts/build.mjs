/**
 * Bundles the two binaries into dist/. Bundled, because loading hundreds of small modules costs more time than the
 * gateway needs to start; split, because heavy parts are loaded only when they are used.
 */
import { chmodSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { root } from "./steps.mjs";

const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(join(root, "dist"), { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: { gateway: "src/bin/gateway.ts", gwctl: "src/bin/gwctl.ts" },
  outdir: "dist",
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  minifySyntax: true,
  minifyWhitespace: true,
  sourcemap: "linked",
  sourcesContent: false,
  legalComments: "none",
  define: { PACKAGE_VERSION: JSON.stringify(version) },
  // Libraries in CommonJS form ask for node's own modules through require.
  banner: {
    js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
  },
  logLevel: "warning",
});
for (const name of ["gateway.js", "gwctl.js"]) chmodSync(join(root, "dist", name), 0o755);
