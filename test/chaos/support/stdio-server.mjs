/**
 * An MCP server over standard streams whose tool returns its message. Its first argument is a mark by which the run
 * finds processes that nobody ended.
 */
import { createInterface } from "node:readline";
import { resultOf } from "./mcp-results.mjs";

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: resultOf(method, params) })}\n`);
  })
  .on("close", () => process.exit(0));
