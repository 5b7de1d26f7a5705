/**
 * Makes the build put the code of a start into few files, because Node takes about a millisecond for each. The bundler splits
 * shared code by the set of files that need it. The modules below run only in processes that have the code of a start, so
 * they import all of it, and do not split it further.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { onDemandEntryPoints } from "./on-demand.mjs";
import { root } from "./steps.mjs";

const START = join(root, "src/bin/run.ts");
const MODULES = [
  "src/app/rehearsal/rehearsal-process.ts",
  "src/bin/cluster.ts",
  "src/bin/controller.ts",
  "src/bin/rehearse.ts",
  "src/bin/thread.ts",
  "src/store/redis-store.ts",
  "src/telemetry/telemetry.ts",
];

export const fewStartFiles = {
  name: "few-start-files",
  setup(bundler) {
    const paths = new Set([...MODULES.map((name) => join(root, name)), ...Object.values(onDemandEntryPoints())]);
    bundler.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) =>
      paths.has(path)
        ? { contents: `${readFileSync(path, "utf8")}\nimport ${JSON.stringify(START)};\n`, loader: "ts" }
        : undefined,
    );
  },
};
