/**
 * Decides which test files share a process. Starting Node and loading the gateway takes longer than most tests, so one
 * process loads several neighboring files of `src/`, or of a folder of `test/`. Tests that measure their own process,
 * and slow tests, run in a separate process.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "./steps.mjs";

/**
 * What reads the memory, the CPU time or the turns of its own process would read those of its neighbours; what takes its file
 * descriptors away takes theirs.
 */
const MEASURES = /\b(?:memoryUsage|resourceUsage|cpuMs|watchTurns|prlimit --pid \$\{process\.pid\})/;

/** Files per process: more would make one process the last to end. Those of `src/` are quick, those with a browser slow. */
const MAX_FILES = 14;
const MAX_FILES_OF = { src: 40, "test-ui": 6 };

/** These take longest and begin first, so that no process is left alone at the end. */
const LONG = [
  "test/scenario/upgrade-process.test.js",
  "test/ui/walk.test.js",
  "test/scenario/mcp-conformance.test.js",
  "test/scenario/mcp-leaks.test.js",
  "test/scenario/faults-last-resort.test.js",
  "test/scenario/secrets.test.js",
  "test/scenario/faults-memory.test.js",
  "src/mcp/nonsense-fuzz.test.js",
];
/** Then these, because their groups take long too; those of `src/` are quick and fill the end. */
const EARLY = ["test-ui", "test-scenario"];

/**
 * Entries for node's runner, the long ones first; each loads the tests of one group.
 * @param {string} out the folder with the compiled files, absolute
 * @param {readonly string[]} files absolute paths
 */
export function groupTests(out, files) {
  const groups = new Map();
  for (const file of files) {
    const path = relative(out, file);
    const isAlone = LONG.includes(path) || MEASURES.test(readFileSync(file, "utf8"));
    const name = isAlone ? path.replace(/\.test\.js$/, "").replaceAll("/", "-") : folderOf(path);
    groups.set(name, [...(groups.get(name) ?? []), path]);
  }
  const folder = join(out, "groups");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const entries = [...groups].flatMap(([name, paths]) =>
    inParts(paths, MAX_FILES_OF[name] ?? MAX_FILES).map((part, i) => ({
      paths: part,
      name: i === 0 ? name : `${name}-${i + 1}`,
    })),
  );
  return entries
    .sort((a, b) => rankOf(a) - rankOf(b) || b.paths.length - a.paths.length)
    .map(({ name, paths }) => writeEntry(out, join(folder, `${name}.mjs`), paths));
}

function folderOf(path) {
  const [top, folder, name] = path.split("/");
  return top === "src" || name === undefined ? top : `${top}-${folder}`;
}

function rankOf({ name, paths }) {
  const index = LONG.indexOf(paths[0]);
  if (index !== -1) return index;
  const early = paths.length === 1 ? -1 : EARLY.findIndex((start) => name.startsWith(start));
  return LONG.length + (early === -1 ? EARLY.length : early);
}

function inParts(paths, most) {
  const count = Math.ceil(paths.length / most);
  const size = Math.ceil(paths.length / count);
  return Array.from({ length: count }, (_, i) => paths.slice(i * size, (i + 1) * size));
}

function writeEntry(out, entry, paths) {
  const loader = pathToFileURL(join(root, "scripts", "load-tests.mjs")).href;
  const files = paths.map((path) => ({
    name: path.replace(/\.js$/, ".ts"),
    url: pathToFileURL(join(out, path)).href,
  }));
  writeFileSync(
    entry,
    `import { loadTests } from "${loader}";\nawait loadTests(import.meta.url, ${JSON.stringify(files, null, 2)});\n`,
  );
  return entry;
}
