/**
 * Starts the single executable: the gateway, gwctl if it is called by that name, or the demo MCP server.
 */
import { basename } from "node:path";
import { print } from "../base/print.ts";
import { DEMO_ARGUMENT } from "./demo-program.ts";

program().catch((error) => {
  print(2, `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exit(1);
});

function program(): Promise<unknown> {
  if (process.argv[2] === DEMO_ARGUMENT) return import("../demo/mcp-server.ts");
  if (/^gwctl(?:\.exe)?$/i.test(basename(process.argv0))) return import("./gwctl.ts");
  return import("./gateway.ts");
}
