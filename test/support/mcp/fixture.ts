/**
 * Where the fixture servers are, as commands for a configuration. They run in this Node from the compiled files.
 */
import { fileURLToPath } from "node:url";

/** A fixture beside this file, by name without ending. */
export function fixturePath(name: string): string {
  return fileURLToPath(new URL(`./${name}.js`, import.meta.url));
}

/** The `stdio` section of a target. */
export function stdioFixture(name: string, ...args: string[]): { cmd: string; args: string[] } {
  return { cmd: process.execPath, args: [fixturePath(name), ...args] };
}
