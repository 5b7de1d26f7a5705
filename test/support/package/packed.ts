/**
 * The npm package, packed from this checkout, and an npm home without a network, because the package contains all
 * dependencies.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** No settings of this machine, and no cache but an empty one. */
export function npmEnvironment(folder: string): Record<string, string> {
  return {
    PATH: process.env.PATH ?? "",
    HOME: folder,
    npm_config_cache: join(folder, "cache"),
    npm_config_offline: "true",
    npm_config_omit: "optional",
    npm_config_update_notifier: "false",
  };
}

/** Packs dist/ as it is: rebuilding it would disturb the tests that run beside. */
export function pack(folder: string): string {
  assert.ok(existsSync(join(process.cwd(), "dist", "gateway.js")), "run `npm run build` first");
  const packed = spawnSync(process.execPath, ["scripts/npm-package.mjs", folder], {
    encoding: "utf8",
    env: npmEnvironment(folder),
  });
  assert.equal(packed.status, 0, packed.stderr);
  const [tarball = ""] = readdirSync(folder).filter((name) => name.endsWith(".tgz"));
  return join(folder, tarball);
}

/** The embedded default has a fixed admin port, which another gateway on this machine may have. */
export function demoYaml(cmd: string, args: readonly string[]): string {
  return `config: { adminAddr: "127.0.0.1:0" }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - backends: [{ mcp: { targets: [{ name: demo, stdio: ${JSON.stringify({ cmd, args })} }] } }]
ui: { gateways: default }
`;
}
