import { spawnSync } from "node:child_process";

/** What a Node says of itself, without the `v`. */
export function nodeVersion(node) {
  return spawnSync(node, ["--version"], { encoding: "utf8" }).stdout.trim().slice(1);
}
