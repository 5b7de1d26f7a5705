/**
 * What the stand-ins for MCP servers answer, over either transport: one tool that returns its message.
 */
export function resultOf(method, params) {
  if (method === "initialize")
    return {
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "chaos", version: "1" },
    };
  if (method === "tools/list") return { tools: [{ name: "echo", inputSchema: { type: "object" } }] };
  return method === "tools/call" ? { content: [{ type: "text", text: params.arguments.message }] } : {};
}
