/**
 * Reads open connections and requests in flight from the admin interface.
 */
import type { TestGateway } from "./gateway.ts";

/** Connections of clients that are open. */
export function openConnections(gateway: TestGateway): Promise<number> {
  return sum(gateway, "connections");
}

/** Requests that have begun and not ended. */
export function requestsUnderWay(gateway: Pick<TestGateway, "adminUrl">): Promise<number> {
  return sum(gateway, "requests");
}

async function sum(gateway: Pick<TestGateway, "adminUrl">, name: string): Promise<number> {
  const text = await (await fetch(`${gateway.adminUrl}/debug/tasks`)).text();
  return [...text.matchAll(new RegExp(`"${name}":\\s*(\\d+)`, "g"))].reduce((all, [, count]) => all + Number(count), 0);
}

/** What the gateway had written before this was asked has arrived when it is answered. */
export async function roundTrip(gateway: TestGateway): Promise<void> {
  await (await fetch(`${gateway.adminUrl}/healthz/live`)).text();
}
