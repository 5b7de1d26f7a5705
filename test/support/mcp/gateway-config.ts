/**
 * Configurations with MCP targets for scenario tests.
 */
import { stdioFixture } from "./fixture.ts";

export function mcpConfig(targets: readonly object[], settings: object = {}, route: object = {}): string {
  return JSON.stringify({
    config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [{ name: "tools", backends: [{ mcp: { targets, ...settings } }], ...route }],
  });
}

/** One legacy server over stdio that does what tests want. */
export function oddTarget(name = "odd", ...flags: string[]): object {
  return { name, stdio: stdioFixture("odd-server", `--name=${name}`, ...flags) };
}
