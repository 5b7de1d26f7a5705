/**
 * Sessions with the odd server behind an MCP backend, and the texts of its calls.
 */
import type { Clock } from "../../../src/base/clock.ts";
import { type Json, type RawClient, rawClient } from "./client.ts";
import { stdioFixture } from "./fixture.ts";
import { type ServedBackend, serveMcp } from "./serve-backend.ts";

export function serveOdd(clock?: Clock): Promise<ServedBackend> {
  const targets = [{ name: "odd", stdio: stdioFixture("odd-server") }];
  return serveMcp({ targets }, clock === undefined ? {} : { clock });
}

export async function openOdd(served: ServedBackend, capabilities: object = {}): Promise<RawClient> {
  const client = rawClient(served.url);
  await client.initialize({ capabilities });
  return client;
}

export function toolCall(name: string, args: object, id: unknown = 1, meta?: object): object {
  return {
    jsonrpc: "2.0",
    id,
    method: "tools/call",
    params: { name, arguments: args, ...(meta ? { _meta: meta } : {}) },
  };
}

/** What the server says of itself. */
export async function stateOf(client: RawClient): Promise<Json> {
  return JSON.parse((await client.call("state")).result.content[0].text);
}
