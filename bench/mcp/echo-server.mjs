/**
 * The MCP server behind every compared program. It responds to `initialize` and tool calls as fast as possible, so
 * that the program in front dominates the measurement. The argument is the number of tools in its list.
 */
const tools = Array.from({ length: Number(process.argv[2] ?? 1) }, (_, i) => ({
  name: i === 0 ? "echo" : `tool${i}`,
  description: `Reads record ${i} of the archive and returns its text, its author, and the date of its last change.`,
  inputSchema: {
    type: "object",
    properties: { message: { type: "string", description: "The text" }, limit: { type: "integer" } },
    required: ["message"],
  },
}));
let rest = "";
process.stdin.setEncoding("utf8").on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  let out = "";
  for (const line of lines) {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) continue;
    const result =
      method === "initialize"
        ? {
            protocolVersion: params.protocolVersion,
            capabilities: { tools: {} },
            serverInfo: { name: "echo", version: "1" },
          }
        : method === "tools/call"
          ? { content: [{ type: "text", text: "x".repeat(128) }] }
          : method === "tools/list"
            ? { tools }
            : {};
    out += `${JSON.stringify({ result, jsonrpc: "2.0", id })}\n`;
  }
  if (out !== "") process.stdout.write(out);
});
process.stdin.on("end", () => process.exit(0));
