/**
 * What is installed besides our own code (row V5 of the threat table): few packages, each fixed to its bytes, and
 * none may run a program while it is installed. Whoever adds one changes a number here, and says why in docs/adr/.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
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
  "dependencies" | "devDependencies",
  Record<string, string>
>;
const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as { packages: Record<string, LockedPackage> };
const packages = Object.entries(lock.packages).filter(([path]) => path !== "");
const run = packages.filter(([, { dev, devOptional }]) => !dev && !devOptional);

const MAX_DIRECT = 18;
const MAX_INSTALLED = 99;
/** They have such a script; `.npmrc` keeps it from running, and nothing of ours needs it to. */
const KNOWN_INSTALL_SCRIPTS = ["@google/genai", "esbuild", "protobufjs"];

test("the gateway has no more dependencies than agreed, itself and in all [V5]", () => {
  assert.ok(Object.keys(manifest.dependencies).length <= MAX_DIRECT);
  assert.ok(run.length > 0 && run.length <= MAX_INSTALLED, `${run.length} packages`);
});

test("every version is exact, and every package is fixed to its bytes [V5]", () => {
  const versions = Object.entries({ ...manifest.dependencies, ...manifest.devDependencies });
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
