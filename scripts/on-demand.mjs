/**
 * Modules that are loaded at their first use with `onDemand` (src/base/on-demand.ts): the build makes each of them a file
 * of its own, and bundles that are one file contain them as functions.
 */
import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { root } from "./steps.mjs";

const REQUIRE = "const require = createRequire(import.meta.url);\n";
const CALL = /(onDemand<[^>]*>\(\(\) =>\s+require\(")([\w./-]+)\.js("\))/g;

/** The paths of the modules by the names that the files of the build have; these are in one folder. */
export function onDemandEntryPoints() {
  const entryPoints = {};
  for (const { path, text } of callers())
    for (const [, , target] of text.matchAll(CALL)) {
      const name = basename(target);
      const module = join(dirname(path), `${target}.ts`);
      if ((entryPoints[name] ?? module) !== module) throw new Error(`two modules are named ${name}: rename ${module}`);
      entryPoints[name] = module;
    }
  return entryPoints;
}

/** For bundles that are one file. Without a `require` in its file, the bundler resolves the calls itself. */
export const inlineOnDemand = rewriteCallers("inline-on-demand", (text) => text.replace(REQUIRE, ""));

/** For the build, whose files are in one folder. */
export const splitOnDemand = rewriteCallers("split-on-demand", (text) =>
  text.replace(CALL, (_call, start, target, end) => `${start}./${basename(target)}.js${end}`),
);

function rewriteCallers(name, rewrite) {
  return {
    name,
    setup(bundler) {
      const texts = new Map(callers().map(({ path, text }) => [path, rewrite(text)]));
      bundler.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
        const contents = texts.get(path);
        return contents === undefined ? undefined : { contents, loader: "ts" };
      });
    },
  };
}

function callers() {
  return readdirSync(join(root, "src"), { recursive: true })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .map((name) => join(root, "src", name))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }))
    .filter(({ text }) => text.includes(REQUIRE));
}
