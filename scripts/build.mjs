/**
 * Bundles the two binaries into dist/. Bundled, because loading hundreds of small modules costs more time than the
 * gateway needs to start; split, because heavy parts are loaded only when they are used.
 */
import { chmodSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { inputsHash, stampBuild } from "./build-stamp.mjs";
import { root } from "./steps.mjs";

const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

/** Another folder may be named, so that a build to look at does not disturb a running one. */
const out = process.argv[2] ?? "dist";

// Before anything is read: what changes while it builds is built next time.
const builtFrom = inputsHash();
rmSync(resolve(root, out), { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: {
    gateway: "src/bin/gateway.ts",
    gwctl: "src/bin/gwctl.ts",
    "demo-mcp-server": "src/demo/mcp-server.ts",
    "bcrypt-worker": "src/identity/passwords/bcrypt-worker.ts",
  },
  outdir: out,
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
  define: { PACKAGE_VERSION: JSON.stringify(version), "process.env.NODE_ENV": '"production"' },
  // Native code finds its prebuilt files beside itself; it is loaded only when somebody asks for a profile.
  external: ["@datadog/pprof"],
  plugins: [{ name: "left-out", setup: leaveOut }],
  // Libraries in CommonJS form ask for node's own modules through require.
  banner: {
    js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
  },
  logLevel: "warning",
});
for (const name of ["gateway.js", "gwctl.js"]) chmodSync(resolve(root, out, name), 0o755);
if (out === "dist") {
  await import("./build-ui.mjs");
  stampBuild(builtFrom);
}

function leaveOut(bundler) {
  // The terminal UI's library names its developer tools, which are not installed and never loaded.
  bundler.onResolve({ filter: /^react-devtools-core$/ }, ({ path }) => ({ path, namespace: "empty" }));
  // The command line library would start commands of their own programs; we have none, and loading it costs 10 ms.
  bundler.onResolve({ filter: /^node:child_process$/ }, ({ path, importer }) =>
    importer.includes("commander") ? { path, namespace: "empty" } : undefined,
  );
  // The schema library brings its messages in fifty languages; ours are written by ourselves, in one.
  bundler.onResolve({ filter: /\/locales\/index\.js$/ }, ({ path, importer }) =>
    importer.includes("zod") ? { path, namespace: "empty" } : undefined,
  );
  bundler.onLoad({ filter: /.*/, namespace: "empty" }, () => ({ contents: "export default {};" }));
}
