import { spawnSync } from "node:child_process";

/** Returns the version of a Node.js binary, without the `v`. */
export function nodeVersion(node) {
  return spawnSync(node, ["--version"], { encoding: "utf8" }).stdout.trim().slice(1);
}
