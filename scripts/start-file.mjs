/**
 * Makes the build put the code of a start into few files, because Node takes about a millisecond for each. The bundler splits
 * shared code by the set of files that need it. The modules below run only in processes that have the code of a start, so
 * they import all of it, and do not split it further.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { onDemandEntryPoints } from "./on-demand.mjs";
import { root } from "./steps.mjs";

const START = "src/bin/run.ts";
/** gwctl does not load the gateway. */
const CLI = join(root, "src/cli/");
const MODULES = [
  "src/app/rehearsal/rehearsal-process.ts",
  "src/bin/cluster.ts",
  "src/bin/controller.ts",
  "src/bin/rehearse.ts",
  "src/bin/thread.ts",
  "src/store/redis-store.ts",
  "src/record/telemetry/telemetry.ts",
];

/** The engines run only in the thread of the history, which has nearly all of this code. */
const HISTORY = ["src/record/history/queries.ts", "src/store/folder-lock.ts"];
const ENGINES = ["src/record/history/postgres-engine.ts", "src/record/history/sqlite-engine.ts"];

export const fewStartFiles = {
  name: "few-start-files",
  setup(bundler) {
    const imported = new Map([
      ...MODULES.map((name) => [join(root, name), [START]]),
      ...Object.values(onDemandEntryPoints())
        .filter((path) => !path.startsWith(CLI))
        .map((path) => [path, [START]]),
      ...ENGINES.map((name) => [join(root, name), HISTORY]),
    ]);
    bundler.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
      const added = imported.get(path);
      if (added === undefined) return undefined;
      const lines = added.map((name) => `import ${JSON.stringify(join(root, name))};\n`).join("");
      return { contents: `${readFileSync(path, "utf8")}\n${lines}`, loader: "ts" };
    });
  },
};
