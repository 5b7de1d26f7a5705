/**
 * Locates the demo MCP server: a script next to the bundle, or the single executable itself.
 */
import { fileURLToPath } from "node:url";
import { isOneFile } from "../base/embedded-files.ts";
import type { DemoProgram } from "../config/load/default-config.ts";

export const DEMO_ARGUMENT = "--run-demo-mcp-server";

export function demoProgram(): DemoProgram {
  const args = isOneFile() ? [DEMO_ARGUMENT] : [fileURLToPath(new URL("./demo-mcp-server.js", import.meta.url))];
  return { command: process.execPath, args };
}
