/**
 * Bundles the simulation, and the gateway, the controller, and the threads as separate files. `mutation` is one
 * of `mutations.mjs`.
 */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { inlineOnDemand } from "../../scripts/on-demand.mjs";

const folder = dirname(fileURLToPath(import.meta.url));
const root = join(folder, "../..");

export function bundle(outdir, mutation) {
  const options = {
    outdir,
    bundle: true,
    platform: "node",
    sourcemap: true,
    logLevel: "error",
    plugins: [...(mutation ? [mutate(mutation)] : []), inlineOnDemand],
  };
  return Promise.all([
    build({
      ...options,
      entryPoints: ["main.ts", "gateway.ts", "controller.ts"].map((name) => join(folder, name)),
      format: "esm",
      packages: "external",
    }),
    // Threads are started after the module loader is closed, so this file is a function that contains its packages.
    build({
      ...options,
      entryPoints: [join(root, "src/record/history/history-worker.ts"), join(folder, "thread.ts")],
      entryNames: "[name]",
      format: "cjs",
      define: { "import.meta.url": '"file:///gateway/thread.js"' },
      outExtension: { ".js": ".cjs" },
      external: ["pg-native", "pg-cloudflare", "node-sqlite3-wasm"],
    }),
  ]);
}

function mutate({ also, ...first }) {
  const edits = also ? [first, also] : [first];
  return {
    name: "mutate",
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, ({ path }) => {
        const edit = edits.find(({ file }) => path === join(root, file));
        if (edit === undefined) return undefined;
        const { file, find, replace } = edit;
        const text = readFileSync(path, "utf8");
        if (text.split(find).length !== 2) throw new Error(`${file} does not contain the text of the mutation once`);
        return { contents: text.replace(find, () => replace), loader: "ts" };
      });
    },
  };
}
