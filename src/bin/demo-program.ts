/**
 * How the demo MCP server is started: a script beside the bundle, or the single executable itself.
 */
import { fileURLToPath } from "node:url";
import { isOneFile } from "../base/embedded-files.ts";
import type { DemoProgram } from "../config/load/default-config.ts";

/** Known to the single executable alone. */
export const DEMO_ARGUMENT = "--run-demo-mcp-server";

export function demoProgram(): DemoProgram {
  const args = isOneFile() ? [DEMO_ARGUMENT] : [fileURLToPath(new URL("./demo-mcp-server.js", import.meta.url))];
  return { command: process.execPath, args };
}
