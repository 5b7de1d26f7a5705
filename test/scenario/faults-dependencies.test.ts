/**
 * What is installed or bundled besides our own code (row V5 of the threat table): few packages, each fixed to its bytes,
 * and none may run a program while it is installed. Adding one changes a number here, and needs a reason in docs/adr/.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

interface LockedPackage {
  readonly version?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly hasInstallScript?: boolean;
  readonly link?: boolean;
}

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<
  "optionalDependencies" | "devDependencies",
  Record<string, string>
> & { readonly dependencies?: Record<string, string> };
const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as { packages: Record<string, LockedPackage> };
const packages = Object.entries(lock.packages).filter(([path]) => path !== "");
/** What `npm install` of the package brings along: the profiler and what it needs. */
const installed = packages.filter(([, { dev }]) => !dev);
/** Every build writes it (scripts/third-party.mjs). */
const BUNDLED = "dist/THIRD-PARTY-LICENSES.txt";

const MAX_INSTALLED = 9;
/** 15 of them are the history store: SQLite, and `pg` with what it needs (ADR 45). */
const MAX_BUNDLED = 103;
/** They have such a script; `.npmrc` keeps it from running, and nothing of ours needs it to. */
const KNOWN_INSTALL_SCRIPTS = ["@google/genai", "esbuild", "protobufjs"];

test("the gateway brings no more packages than agreed, installed and bundled [V5]", () => {
  assert.deepEqual(Object.keys(manifest.dependencies ?? {}), [], "what the gateway needs is bundled");
  assert.ok(installed.length > 0 && installed.length <= MAX_INSTALLED, `${installed.length} packages`);
  assert.ok(existsSync(BUNDLED), "run `npm run build` first");
  const bundled = [...readFileSync(BUNDLED, "utf8").matchAll(/^={80}$/gm)].length;
  assert.ok(bundled > 0 && bundled <= MAX_BUNDLED, `${bundled} packages`);
});

test("every version is exact, and every package is fixed to its bytes [V5]", () => {
  const versions = Object.entries({ ...manifest.optionalDependencies, ...manifest.devDependencies });
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
  assert.deepEqual(withScripts.map(([path]) => path.replace(/^.*node_modules\//, "")).sort(), KNOWN_INSTALL_SCRIPTS);
  assert.match(readFileSync(".npmrc", "utf8"), /^ignore-scripts=true$/m);
});
