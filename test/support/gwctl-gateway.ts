/**
 * A gateway with one working and one unavailable backend, and a gwctl that connects to it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startBackend, type TestBackend } from "./backend.ts";
import { startGateway, type TestGateway } from "./gateway.ts";
import { type GwctlOptions, gwctl } from "./gwctl.ts";

export interface GwctlGateway {
  readonly backend: TestBackend;
  readonly gateway: TestGateway;
  /** Of the admin interface. */
  readonly port: string;
  readonly folder: string;
  local(args: readonly string[], options?: GwctlOptions): ReturnType<typeof gwctl>;
  close(): Promise<void>;
}

export async function openGwctlGateway(): Promise<GwctlGateway> {
  const backend = await startBackend();
  const gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: echo
    matches: [{ path: { pathPrefix: /echo } }]
    backends: [{ host: "${backend.host}" }]
    policies: { requestHeaderModifier: { set: { x-route: "yes", authorization: "Bearer s3cret-key" } } }
  - name: down
    matches: [{ path: { pathPrefix: /down } }]
    backends: [{ host: "127.0.0.1:1" }]
`);
  const { port } = new URL(gateway.adminUrl);
  const folder = mkdtempSync(join(tmpdir(), "gwctl-test-"));
  return {
    backend,
    gateway,
    port,
    folder,
    local: (args, options = {}) => gwctl([...args, "--local", "-p", port], options),
    async close() {
      await gateway.close();
      await backend.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
