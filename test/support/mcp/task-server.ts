/**
 * A remote MCP server for tests that runs every tool as a task, with either protocol version. All clients share one
 * credential, so each could read every task. The result of a task names its creator.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Json } from "./client.ts";

export interface TaskServer {
  readonly url: string;
  /** Every message about tasks that reached it. */
  readonly received: Json[];
  /** Items that `tasks/list` adds to its own. */
  extra: Json[];
  close(): Promise<void>;
}

export async function startTaskServer(era: "legacy" | "modern"): Promise<TaskServer> {
  const tasks = new Map<string, Json>();
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const message = chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString());
      if (message === undefined) res.writeHead(405).end();
      else if (message.id === undefined) res.writeHead(202).end();
      else {
        const { method, params = {} } = message;
        if (method.startsWith("tasks/") || method === "subscriptions/listen") fixture.received.push({ method, params });
        const outcome = answer(method, params);
        res.writeHead(200, { "content-type": "application/json" });
        res.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...outcome }));
      }
    });
  });

  function answer(method: string, params: Json): Json {
    const serverInfo = { name: "tasks", version: "1" };
    const capabilities = { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
    switch (method) {
      case "initialize":
        if (era === "modern") break;
        return { result: { protocolVersion: params.protocolVersion, capabilities, serverInfo } };
      case "server/discover":
        if (era === "legacy") break;
        return { result: { supportedVersions: ["2026-07-28"], capabilities, resultType: "complete", serverInfo } };
      case "tools/list":
        return { result: { tools: ["read", "write"].map((name) => ({ name, inputSchema: { type: "object" } })) } };
      case "tools/call": {
        const task = { taskId: `task-${tasks.size + 1}`, status: "working", ttl: null };
        tasks.set(task.taskId, { ...task, result: { content: [{ type: "text", text: params.arguments?.who ?? "" }] } });
        return { result: era === "modern" ? { ...task, resultType: "task" } : { task } };
      }
      case "tasks/list":
        return { result: { tasks: [...tasks.values(), ...fixture.extra], Tasks: [...tasks.values()] } };
      case "subscriptions/listen":
        return { result: { resultType: "complete" } };
      default: {
        const task = method.startsWith("tasks/") ? tasks.get(params.taskId) : undefined;
        if (task) return { result: task };
        if (method.startsWith("tasks/")) return { error: { code: -32602, message: "no such task" } };
      }
    }
    return { error: { code: -32601, message: `Method not found: ${method}` } };
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const fixture: TaskServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    received: [],
    extra: [],
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return fixture;
}
