/**
 * Runs a gateway with several threads in a separate process. It requires a newer Node.js than the gateway, so an
 * optional dev dependency provides one if this one is too old.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { canSharePorts } from "../../src/app/threads/load-for-threads.ts";
import { configFile } from "./config-file.ts";
import { type GatewayProcess, startGatewayProcess } from "./gateway-process.ts";

const require = createRequire(import.meta.url);
export const BUNDLE = join(process.cwd(), "dist", "gateway.js");
const KILL = fileURLToPath(new URL("./kill-thread.js", import.meta.url));

/** Each thread loads the whole program: on a busy machine that takes its time. */
const PATIENCE_MS = 90_000;

export function threadingNode(): string | undefined {
  if (process.platform !== "linux") return undefined;
  if (canSharePorts(process.versions.node)) return process.execPath;
  try {
    const path = join(dirname(require.resolve(`node-linux-${process.arch}/package.json`)), "bin/node");
    return existsSync(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

/** A configuration with so many threads and the listener `main`. `more` has further lines of `config`. */
export function threadedConfig(threads: number, routes: string, more = ""): string {
  return `
config:
  workers: ${threads}
  adminAddr: 127.0.0.1:0
  logging: { level: "info,access=off" }
${more}
gateways:
  main: { port: 0, protocol: HTTP }
routes:
${routes}`;
}

export const HELLO_ROUTE = `
  - gateways: [main]
    name: hello
    matches: [{ path: { pathPrefix: /hello } }]
    policies: { directResponse: { status: 200, body: "one" } }
`;

export interface ThreadedGateway {
  readonly process: GatewayProcess;
  readonly file: string;
  readonly url: string;
  readonly adminUrl: string;
  admin(path: string): Promise<string>;
  json<Answer>(path: string): Promise<Answer>;
}

export async function startThreaded(
  t: TestContext,
  config: string,
  node: string,
  nodeFlags: readonly string[] = [],
): Promise<ThreadedGateway> {
  const file = configFile(t, config);
  const command = [node, ...nodeFlags, "--import", KILL, BUNDLE];
  const gateway = startGatewayProcess(t, ["-f", file], { command, patienceMs: PATIENCE_MS });
  const port = await gateway.port("main");
  const adminUrl = await gateway.adminUrl();
  await gateway.logged("started version=");
  const admin = async (path: string): Promise<string> => (await fetch(`${adminUrl}${path}`)).text();
  return {
    process: gateway,
    file,
    url: `http://127.0.0.1:${port}`,
    adminUrl,
    admin,
    json: async <Answer>(path: string) => JSON.parse(await admin(path)) as Answer,
  };
}

export interface Sent {
  readonly statuses: Readonly<Record<string, number>>;
  readonly bodies: ReadonlySet<string>;
}

/** Sends requests over so many connections at once, each after the other without waiting, and says what came back. */
export async function sendMany(url: string, count: number, connections: number): Promise<Sent> {
  const { hostname, port, pathname } = new URL(url);
  const statuses: Record<string, number> = {};
  const bodies = new Set<string>();
  const each = Math.ceil(count / connections);
  const sizes = Array.from({ length: connections }, (_, i) => Math.max(0, Math.min(each, count - i * each)));
  await Promise.all(
    sizes.map(async (size) => {
      if (size === 0) return;
      const socket = connect(Number(port), hostname);
      const head = `GET ${pathname} HTTP/1.1\r\nhost: x\r\n`;
      socket.write([...Array(size - 1).fill(head), `${head}connection: close\r\n`].join("\r\n").concat("\r\n"));
      let text = "";
      socket.setEncoding("latin1").on("data", (chunk: string) => {
        text += chunk;
      });
      const failure = await new Promise<string | undefined>((resolve) => {
        socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
        socket.once("close", () => resolve(undefined));
      });
      if (failure !== undefined) statuses[failure] = (statuses[failure] ?? 0) + 1;
      for (const [, status = "", rest = ""] of text.matchAll(
        /HTTP\/1\.1 (\d{3})(?:.*\r\n)+?\r\n([^\r]*?)(?=HTTP\/1\.1|$)/g,
      )) {
        statuses[status] = (statuses[status] ?? 0) + 1;
        bodies.add(rest);
      }
    }),
  );
  return { statuses, bodies };
}
