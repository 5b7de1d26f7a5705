/**
 * Modules that are loaded at their first use with `onDemand` (src/base/on-demand.ts): the build makes each of them a file
 * of its own, and bundles that are one file contain them as functions.
 */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { root } from "./steps.mjs";

const REQUIRE = "const require = createRequire(import.meta.url);\n";
const CALL = /onDemand<[^\n]*>\(\(\) => require\("\.\/([\w-]+)\.js"\)\)/g;

/** The paths of the modules by the names that the files of the build have; these are in one folder. */
export function onDemandEntryPoints() {
  const entryPoints = {};
  for (const { path, text } of callers())
    for (const [, name] of text.matchAll(CALL)) {
      const module = join(dirname(path), `${name}.ts`);
      if ((entryPoints[name] ?? module) !== module) throw new Error(`two modules are named ${name}: rename ${module}`);
      entryPoints[name] = module;
    }
  return entryPoints;
}

/** Without a `require` of its own, the bundler resolves the calls, and evaluates the modules when they are called. */
export const inlineOnDemand = {
  name: "inline-on-demand",
  setup(bundler) {
    const texts = new Map(callers().map(({ path, text }) => [path, text]));
    bundler.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
      const text = texts.get(path);
      return text && { contents: text.replace(REQUIRE, ""), loader: "ts" };
    });
  },
};

function callers() {
  return readdirSync(join(root, "src"), { recursive: true })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .map((name) => join(root, "src", name))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }))
    .filter(({ text }) => text.includes(REQUIRE));
}
