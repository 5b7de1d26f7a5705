import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { TestGateway } from "../gateway.ts";
import { gatewayFor } from "../scenario.ts";
import { oddTarget } from "./gateway-config.ts";

export const SESSION_KEY = "a key of at least thirty-two characters";

export interface Setup {
  readonly config?: object;
  readonly targets?: readonly object[];
  readonly mcp?: object;
  readonly route?: object;
  readonly port?: number;
}

export function yaml({ config = {}, targets = [oddTarget()], mcp = {}, route = {}, port = 0 }: Setup): string {
  return JSON.stringify({
    config: { adminAddr: "off", logging: { level: "info,access=off" }, ...config },
    gateways: { default: { port, address: "127.0.0.1" } },
    routes: [
      { name: "tools", backends: [{ mcp: { targets, ...mcp } }], ...route },
      { name: "other", matches: [{ path: { exact: "/other" } }], backends: [{ mcp: { targets, ...mcp } }] },
    ],
  });
}

export function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "sessions-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Ends the gateway and starts another one on its port. */
export async function restart(t: TestContext, gateway: TestGateway, setup: Setup): Promise<TestGateway> {
  const port = gateway.port();
  await gateway.close();
  return gatewayFor(t, yaml({ ...setup, port }));
}

/** A kept connection may be one to the gateway before. */
export async function repeated<Result>(request: () => Promise<Result>): Promise<Result> {
  try {
    return await request();
  } catch {
    return request();
  }
}
