/**
 * Installs the other MCP bridges from the registry into a folder outside the project. Without a network, the
 * comparison skips them.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = join(tmpdir(), "gateway-bench-peers");
const PACKAGES = ["supergateway@4", "mcp-proxy@6"];

/** Each: its name, and the command line for a port and a server's command. */
export function peers() {
  if (!existsSync(join(folder, "node_modules/supergateway"))) {
    mkdirSync(folder, { recursive: true });
    console.log(`── fetching ${PACKAGES.join(", ")}`);
    writeFileSync(join(folder, "package.json"), "{}");
    const install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict=false", ...PACKAGES];
    if (spawnSync("npm", install, { cwd: folder, stdio: "ignore" }).status !== 0) {
      console.log("the peers could not be fetched: their rows are missing");
      return [];
    }
  }
  return [
    {
      name: "supergateway",
      args: (port, command) => [
        bin("supergateway/dist/index.js"),
        "--stdio",
        command.join(" "),
        "--outputTransport",
        "streamableHttp",
        "--stateful",
        "--port",
        String(port),
        "--logLevel",
        "none",
      ],
    },
    {
      name: "mcp-proxy",
      args: (port, command) => [
        bin("mcp-proxy/dist/bin/mcp-proxy.mjs"),
        "--port",
        String(port),
        "--server",
        "stream",
        "--shell",
        command.join(" "),
      ],
    },
  ].filter(({ args }) => existsSync(args(0, [""])[0]));
}

function bin(path) {
  return join(folder, "node_modules", path);
}
