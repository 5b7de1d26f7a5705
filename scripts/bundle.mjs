/**
 * The options that all bundles of the programs share: the target, external packages, and the embedded version.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { transformSync } from "esbuild";
import { inlineOnDemand } from "./on-demand.mjs";
import { root } from "./steps.mjs";

export const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

export const bundleOptions = {
  absWorkingDir: root,
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  // Otherwise the bundler rewrites these literals to `new RegExp`, which is compiled at each use.
  supported: { "regexp-unicode-property-escapes": true },
  minifySyntax: true,
  // Whitespace stays, so that stack traces have readable lines without source maps. Removing it would save 2 MB and 5% of
  // the CPU time of a start, but the source maps that stack traces would then need have 4.5 MB.
  legalComments: "none",
  metafile: true,
  define: { PACKAGE_VERSION: JSON.stringify(version), "process.env.NODE_ENV": '"production"' },
  // Native code loads its prebuilt files from its own folder, and only when a profile is requested.
  external: ["@datadog/pprof"],
  loader: { ".wasm": "binary" },
  plugins: [
    { name: "left-out", setup: leaveOut },
    { name: "one-byte-text", setup: replaceWideCharacters },
    inlineOnDemand,
  ],
  logLevel: "warning",
};

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
  // The PostgreSQL client names an optional native library, which is not used.
  bundler.onResolve({ filter: /^pg-native$/ }, ({ path }) => ({ path, namespace: "empty" }));
  // SQLite reads its WebAssembly file from its own folder, which a bundle does not have.
  bundler.onLoad({ filter: /node-sqlite3-wasm\.js$/ }, ({ path }) => ({
    contents: embedWasm(readFileSync(path, "utf8")),
    resolveDir: dirname(path),
  }));
  bundler.onLoad({ filter: /.*/, namespace: "empty" }, () => ({ contents: "export default {};" }));
}

/**
 * V8 keeps the text of each file in memory, with two bytes per character if a single one is not Latin-1. The bundler
 * escapes such characters everywhere but in comments and regular expressions.
 */
function replaceWideCharacters(bundler) {
  bundler.onEnd(({ metafile }) => {
    for (const path of Object.keys(metafile?.outputs ?? {}).filter((name) => /\.[cm]?js$/.test(name))) {
      const file = resolve(bundler.initialOptions.absWorkingDir, path);
      const text = readFileSync(file, "utf8");
      const narrow = text.replace(/[^\0-\u00ff]/g, "?");
      if (narrow === text) continue;
      if (withoutComments(narrow) !== withoutComments(text))
        throw new Error(`${path}: a regular expression has a character that must be written as \\u....`);
      writeFileSync(file, narrow);
    }
  });
}

function withoutComments(text) {
  return transformSync(text, { minifyWhitespace: true, legalComments: "none" }).code;
}

function embedWasm(text) {
  const place = "var wasmBinary;";
  if (text.split(place).length !== 2) throw new Error("node-sqlite3-wasm: the place of its WebAssembly file changed");
  return `const __dirname = "";${text.replace(place, 'var wasmBinary = require("./node-sqlite3-wasm.wasm");')}`;
}
