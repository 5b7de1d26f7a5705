/**
 * A gateway with scripted servers, and requests of either protocol version that check the invariants of every
 * response.
 */
import assert from "node:assert/strict";
import { type Json, type RawClient, rawClient } from "./client.ts";
import { modernPost } from "./modern-client.ts";
import { type Script, type ScriptedServer, startScripted, type Transport } from "./scripted-server.ts";
import { type ServedBackend, serveMcp } from "./serve-backend.ts";

/** Where a merged answer names the targets that failed. */
export const FAILED_TARGETS = "gateway.internal/failedTargets";

export async function withServers(
  servers: readonly (readonly [Transport, Script])[],
  config: object,
  run: (client: RawClient, url: string, served: ServedBackend) => Promise<void>,
): Promise<void> {
  const started: ScriptedServer[] = [];
  for (const [transport, script] of servers) started.push(await startScripted(transport, script));
  const served = await serveMcp({ targets: started.map(({ target }) => target), requestTimeout: "3s", ...config });
  try {
    await run(rawClient(served.url), served.url, served);
  } finally {
    await served.close();
    for (const one of started) await one.close();
  }
}

export type Ask = (method: string, params: Record<string, unknown>) => Promise<Json>;

/** Requests of one era, each under an id of its own that the answer must carry. */
export async function asker(era: "legacy" | "modern", client: RawClient, url: string): Promise<Ask> {
  let nextId = 1000;
  if (era === "legacy") await client.initialize();
  return async (method, params) => {
    const id = nextId++;
    const { messages, message } =
      era === "legacy"
        ? await client.post({ jsonrpc: "2.0", id, method, params })
        : await modernPost(url, method, params, { id });
    assert.equal(message.id, id);
    assert.equal(messages.filter((one) => one.id === id && one.method === undefined).length <= 1, true);
    return message;
  };
}
