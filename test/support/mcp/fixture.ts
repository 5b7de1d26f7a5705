/**
 * Commands that start the fixture servers, for configurations. They run the compiled files with this Node.js.
 */
import { existsSync, renameSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

/** A fixture beside this file, by name without ending. */
export function fixturePath(name: string): string {
  return fileURLToPath(new URL(`./${name}.js`, import.meta.url));
}

/** The same in one file, made once: a fixture that loads a library starts with two thirds of the CPU time. */
export function bundledFixture(name: string): string {
  const path = fixturePath(`${name}.bundled`);
  if (existsSync(path)) return path;
  // Other test processes may do the same.
  const own = fixturePath(`${name}.bundled-${process.pid}`);
  buildSync({ entryPoints: [fixturePath(name)], bundle: true, platform: "node", format: "esm", outfile: own });
  renameSync(own, path);
  return path;
}

/** The `stdio` section of a target. */
export function stdioFixture(name: string, ...args: string[]): { cmd: string; args: string[] } {
  return { cmd: process.execPath, args: [fixturePath(name), ...args] };
}
