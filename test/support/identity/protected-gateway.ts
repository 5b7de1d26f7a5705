/**
 * A gateway with protected MCP routes behind a public address, for the login scenarios.
 */
import { fileURLToPath } from "node:url";
import { startGateway, type TestGateway, type TestGatewayOptions } from "../gateway.ts";
import { type FrontDoor, openFrontDoor } from "./front-door.ts";

export const DEMO_SERVER = fileURLToPath(new URL("../../../src/demo/mcp-server.js", import.meta.url));

/** The demo MCP server over stdio, in the words of a configuration. */
export const DEMO_TARGET = `{ name: demo, stdio: { cmd: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(DEMO_SERVER)}] } }`;

export interface ProtectedGateway {
  /** The public origin. */
  readonly base: string;
  readonly gateway: TestGateway;
  /** A request to the public address. */
  request(path: string, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

/** The configuration is made from the public origin, which it has to name. */
export async function startProtectedGateway(
  yaml: (base: string) => string | Promise<string>,
  options: TestGatewayOptions = {},
): Promise<ProtectedGateway> {
  const door: FrontDoor = await openFrontDoor();
  let gateway: TestGateway;
  try {
    gateway = await startGateway(
      `config: { drainTimeout: 100ms, logging: { level: trace } }\n${await yaml(door.url)}`,
      options,
    );
  } catch (error) {
    await door.close();
    throw error;
  }
  door.leadTo(gateway.port());
  return {
    base: door.url,
    gateway,
    request: (path, init) => fetch(`${door.url}${path}`, { redirect: "manual", ...init }),
    async close() {
      await gateway.close();
      await door.close();
    },
  };
}

/** The body and headers of an `initialize` request, as any MCP client sends it. */
export function initialize(token?: string): RequestInit {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  return {
    method: "POST",
    headers: token === undefined ? headers : { ...headers, authorization: `Bearer ${token}` },
    body: JSON.stringify({ jsonrpc: "2.0", method: "initialize", params, id: 1 }),
  };
}
