/**
 * `npm run inputs -- --faults [name…]`: puts each fault of `test/inputs/faults.mjs`, or those whose name contains one of
 * the given texts, into a temporary copy of the tree, and runs its tests there. A text such as `set 2` selects the faults
 * of that set. A fault is found if a test fails that passes without the fault. Tests below `src/` run first, and the
 * others only if these do not find the fault. Prints the first tests that fail for each fault, and totals for each class.
 * Uncommitted changes are part of the copy.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FAULTS } from "../test/inputs/faults.mjs";
import { root } from "./steps.mjs";

/** Longer means that the fault made a test wait for something that does not come. `timeout` ends child processes too. */
const LIMIT_SECONDS = 900;
const TIMED_OUT = 124;

const SHOWN_FAILURES = 5;

/** Returns the exit code: 1 if a fault was not found. */
export function runFaults(names) {
  const faults = FAULTS.filter((fault) => names.length === 0 || names.some((text) => isNamed(fault, text)));
  for (const { name, file, find } of faults)
    if (readFileSync(join(root, file), "utf8").split(find).length !== 2)
      throw new Error(`${file}: the text to replace must occur once (${name})`);
  const copy = mkdtempSync(join(tmpdir(), "input-faults-"));
  try {
    copyTree(copy);
    compile(copy);
    const failing = new Set(stages(faults.flatMap(({ tests }) => tests)).flatMap((tests) => failures(copy, tests)));
    for (const test of failing) console.log(`fails without a fault: ${test}`);
    const totals = new Map();
    for (const fault of faults) {
      const found = findFault(copy, fault, failing);
      console.log(`${found.length === 0 ? "NOT FOUND" : "found"}  ${fault.class}: ${fault.name}`);
      for (const test of found.slice(0, SHOWN_FAILURES)) console.log(`    ${test}`);
      for (const title of [fault.class, "all"]) totals.set(title, [...(totals.get(title) ?? []), found.length > 0]);
    }
    for (const [title, results] of totals)
      console.log(`${title}: ${results.filter(Boolean).length} of ${results.length} found`);
    return totals.get("all")?.every(Boolean) ? 0 : 1;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function isNamed({ name, set }, text) {
  return /^set \d+$/.test(text) ? text === `set ${set}` : name.includes(text);
}

/** The packages are hard links: tests do not write to them. */
function copyTree(copy) {
  const listed = run(root, "git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).stdout;
  for (const file of listed.split("\0").filter((name) => name !== ""))
    cpSync(join(root, file), join(copy, file), { verbatimSymlinks: true });
  run(root, "cp", ["-al", "node_modules", copy]);
}

/** The failed tests that pass without the fault, of the first stage that has some. */
function findFault(copy, { file, find, replace, tests }, failing) {
  const source = readFileSync(join(copy, file), "utf8");
  // A function, because `$` has a meaning in a replacement string.
  writeFileSync(
    join(copy, file),
    source.replace(find, () => replace),
  );
  try {
    compile(copy);
    for (const stage of stages(tests)) {
      const found = failures(copy, stage).filter((test) => !failing.has(test));
      if (found.length > 0) return found;
    }
    return [];
  } finally {
    writeFileSync(join(copy, file), source);
  }
}

function stages(tests) {
  const unique = [...new Set(tests)];
  const isUnit = (path) => path.startsWith("src/");
  return [unique.filter(isUnit), unique.filter((path) => !isUnit(path))].filter((stage) => stage.length > 0);
}

function compile(copy) {
  const compiler = join(copy, "node_modules/.bin/tsc");
  run(copy, compiler, ["-p", ".", "--outDir", "build", "--noCheck", "--tsBuildInfoFile", "build/.tsbuildinfo"]);
}

/** Tests outside of `src/` can start the bundled gateway. */
function failures(copy, tests) {
  if (!tests.every((path) => path.startsWith("src/"))) run(copy, process.execPath, ["scripts/build.mjs"]);
  const args = ["scripts/test.mjs", "--compiled", ...tests];
  const { status, stdout, stderr } = spawn(copy, process.execPath, args);
  if (status === 0) return [];
  // Otherwise a fault would count as found, although no test ran.
  if (stderr.includes("no tests below")) throw new Error(stderr.trim());
  const end = stdout.lastIndexOf("\nℹ tests ");
  const failed = stdout.slice(Math.max(0, stdout.search(/^\d+ failures?:$/m)), end);
  // Without the duration of a file, and without the line of a test.
  const named = [...failed.matchAll(/^✖ (.+)$/gm)].map(([, name]) => name.replace(/ \([\d.]+ms\)$|:\d+(?=\)$)/, ""));
  return named.length > 0 ? named : [`the tests end with ${status === TIMED_OUT ? "a timeout" : `status ${status}`}`];
}

function run(folder, command, args) {
  const result = spawn(folder, command, args);
  if (result.status !== 0) throw new Error(`${command} ${args.join(" ")}:\n${result.stdout}${result.stderr}`);
  return result;
}

function spawn(folder, command, args) {
  const options = { cwd: folder, encoding: "utf8", maxBuffer: 256 * 1024 * 1024 };
  return spawnSync("timeout", [String(LIMIT_SECONDS), command, ...args], options);
}
