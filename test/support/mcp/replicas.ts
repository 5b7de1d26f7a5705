/**
 * Two replicas with one Redis, and a session opened at one of them.
 */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { gatewayFor } from "../scenario.ts";
import { type RedisServer, startRedis } from "../store/redis-server.ts";
import { type Json, type RawClient, rawClient } from "./client.ts";
import { mcpConfig, oddTarget } from "./gateway-config.ts";

export interface Replicas {
  readonly urls: readonly [string, string];
  readonly redis: RedisServer;
}

export async function replicasFor(t: TestContext, targets = [oddTarget()], route: object = {}): Promise<Replicas> {
  const redis = await startRedis();
  t.after(redis.close);
  const { config, ...rest } = JSON.parse(mcpConfig(targets, {}, route));
  const yaml = JSON.stringify({ ...rest, config: { ...config, adminAddr: "off", store: { redis: redis.url } } });
  const urls: string[] = [];
  for (let i = 0; i < 2; i++) urls.push(`${(await gatewayFor(t, yaml)).url()}/mcp`);
  return { urls: urls as [string, string], redis };
}

export interface Pair {
  /** Where the session was opened. */
  readonly here: RawClient;
  /** The other one; the same session. */
  readonly there: RawClient;
}

/** A session that was opened at the first replica. `isHeld`: the second one holds it as well. */
export async function sessionAt({ urls }: Replicas, isHeld: boolean, capabilities: object = {}): Promise<Pair> {
  const [here, there] = urls.map((url) => rawClient(url)) as [RawClient, RawClient];
  await here.initialize({ capabilities });
  there.sessionId = here.sessionId;
  if (isHeld) assert.ok((await there.request("ping")).result);
  return { here, there };
}

export async function stateAt(client: RawClient, prefix = ""): Promise<Json> {
  return JSON.parse((await client.call(`${prefix}state`)).result.content[0].text);
}

export const note = (method: string, params: object = {}) => ({ jsonrpc: "2.0", method, params });
