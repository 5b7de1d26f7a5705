/**
 * What is installed or bundled besides our own code (row V5 of the threat table): few packages, each fixed to its bytes,
 * and none may run a program while it is installed. Adding one changes a number here, and needs a reason in docs/adr/.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

interface LockedPackage {
  readonly dependencies?: Record<string, string>;
  readonly peerDependencies?: Record<string, string>;
  readonly optionalDependencies?: Record<string, string>;
  readonly version?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly hasInstallScript?: boolean;
  readonly link?: boolean;
}

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<
  "dependencies" | "optionalDependencies" | "devDependencies",
  Record<string, string>
>;
const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as { packages: Record<string, LockedPackage> };
const packages = Object.entries(lock.packages).filter(([path]) => path !== "");
/** What `npm install` of the package brings along: the profiler and what it needs. */
const installed = reachable(Object.keys(manifest.optionalDependencies));
/** Every build writes it (scripts/third-party.mjs). */
const BUNDLED = "dist/THIRD-PARTY-LICENSES.txt";

const MAX_INSTALLED = 9;
/** 15 of them are the history store: SQLite, and `pg` with what it needs (ADR 45); 7 encode the certificate (ADR 24), 1 signs (ADR 8). */
const MAX_BUNDLED = 111;
/** They have such a script; `.npmrc` keeps it from running, and nothing of ours needs it to. */
const KNOWN_INSTALL_SCRIPTS = ["@google/genai", "esbuild", "protobufjs"];

test("the gateway brings no more packages than agreed, installed and bundled [V5]", () => {
  assert.ok(installed.size > 0 && installed.size <= MAX_INSTALLED, `${installed.size} packages`);
  assert.ok(existsSync(BUNDLED), "run `npm run build` first");
  const bundled = [...readFileSync(BUNDLED, "utf8").matchAll(/^={80}$/gm)].length;
  assert.ok(bundled > 0 && bundled <= MAX_BUNDLED, `${bundled} packages`);
});

test("`dependencies` names the packages inside the bundles, and no others [V5]", () => {
  const { components } = JSON.parse(readFileSync("dist/sbom.cdx.json", "utf8")) as {
    components: { readonly group?: string; readonly name: string }[];
  };
  const bundled = components.map(({ group, name }) => (group === undefined ? name : `${group}/${name}`));
  const named = Object.keys(manifest.dependencies);
  assert.deepEqual(
    named.filter((name) => !bundled.includes(name)),
    [],
    "is not in a bundle",
  );
  assert.deepEqual(
    Object.keys(manifest.devDependencies).filter((name) => bundled.includes(name)),
    [],
    "is in a bundle",
  );
  const possible = new Set([...reachable(named)].map(nameOf));
  assert.deepEqual(
    bundled.filter((name) => !possible.has(name)),
    [],
    "is in a bundle, and no dependency needs it",
  );
});

test("a decision record names every dependency", () => {
  const folder = "docs/adr";
  const records = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  assert.deepEqual(
    Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies }).filter(
      (name) => !records.some((record) => record.includes(`\`${name}\``)),
    ),
    [],
  );
});

test("every version is exact, and every package is fixed to its bytes [V5]", () => {
  const { dependencies, optionalDependencies, devDependencies } = manifest;
  const versions = Object.entries({ ...dependencies, ...optionalDependencies, ...devDependencies });
  assert.deepEqual(
    versions.filter(([, version]) => !/^\d+\.\d+\.\d+(?:-[\w.]+)?$/.test(version)),
    [],
  );
  for (const [name, version] of versions)
    assert.equal(lock.packages[`node_modules/${name}`]?.version, version, `${name} is not what the lock has`);
  assert.deepEqual(
    packages.filter(([, { integrity, link }]) => link || !integrity?.startsWith("sha512-")).map(([path]) => path),
    [],
  );
});

test("no package runs a program while it is installed [V5]", () => {
  const withScripts = packages.filter(([, { hasInstallScript }]) => hasInstallScript);
  assert.deepEqual(withScripts.map(([path]) => nameOf(path)).sort(), KNOWN_INSTALL_SCRIPTS);
  assert.match(readFileSync(".npmrc", "utf8"), /^ignore-scripts=true$/m);
});

function nameOf(path: string): string {
  return path.replace(/^.*node_modules\//, "");
}

/** Returns the paths in the lock file of these packages and of all that they need, as Node finds them. */
function reachable(names: readonly string[], from = "", found = new Set<string>()): Set<string> {
  for (const name of names) {
    let folder = from;
    while (folder !== "" && lock.packages[`${folder}/node_modules/${name}`] === undefined)
      folder = folder.includes("/node_modules/") ? folder.slice(0, folder.lastIndexOf("/node_modules/")) : "";
    const path = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    const entry = lock.packages[path];
    if (entry === undefined || found.has(path)) continue;
    found.add(path);
    const { dependencies, peerDependencies, optionalDependencies } = entry;
    reachable(Object.keys({ ...dependencies, ...peerDependencies, ...optionalDependencies }), path, found);
  }
  return found;
}
