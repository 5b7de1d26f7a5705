/**
 * Installs Portkey's gateway from the registry into a folder outside the project. Without a network, the comparison
 * skips it.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = join(tmpdir(), "gateway-bench-portkey");
const script = join(folder, "node_modules/@portkey-ai/gateway/build/start-server.js");

/** The command line for a port, and the headers that point it at a provider; undefined if it cannot be had. */
export function portkey(port, providerPort) {
  if (!existsSync(script)) {
    mkdirSync(folder, { recursive: true });
    console.log("── fetching @portkey-ai/gateway@1.15.2");
    const install = [
      "install",
      "--prefix",
      folder,
      "--no-audit",
      "--no-fund",
      "--ignore-scripts",
      "@portkey-ai/gateway@1.15.2",
    ];
    if (spawnSync("npm", install, { stdio: "ignore" }).status !== 0 || !existsSync(script)) {
      console.log("Portkey could not be fetched: its row is missing");
      return undefined;
    }
  }
  return {
    args: [script, `--port=${port}`, "--headless"],
    environment: { TRUSTED_CUSTOM_HOSTS: "127.0.0.1" },
    headers: { "x-portkey-provider": "openai", "x-portkey-custom-host": `http://127.0.0.1:${providerPort}/v1` },
  };
}
