/**
 * A large gateway: hundreds of routes with limits and long names, MCP servers with a thousand tools between them, and
 * thousands of requests that have passed. The sizes are those that the UI promises to be quick with.
 */
import { Agent, request } from "node:http";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";

export interface Scale {
  readonly routes: number;
  readonly tools: number;
  readonly requests: number;
}

export const FULL: Scale = { routes: 500, tools: 1_000, requests: 10_000 };
/** For every test run: more than any page draws at once, and few enough to be quick. */
export const SHORT: Scale = { routes: 120, tools: 240, requests: 700 };

const SERVERS = 8;
/** Below what the gateway keeps of a second, so that all of them are remembered. */
const PER_TENTH = 45;

export interface ScaleGateway {
  readonly gateway: TestGateway;
  close(): Promise<void>;
}

export function routeName(index: number): string {
  return index % 10 === 3 ? `a-route-with-a-very-long-name-that-does-not-fit-anywhere-${index}` : `route-${index}`;
}

export async function startScale(scale: Scale): Promise<ScaleGateway> {
  const servers: ToolsServer[] = [];
  for (let i = 0; i < SERVERS; i++) servers.push(await startToolsServer(toolsOf(scale.tools / SERVERS)));
  const gateway = await startGateway(configOf(scale, servers));
  await sendAll(gateway, scale);
  return {
    gateway,
    async close() {
      await gateway.close();
      for (const server of servers) await server.close();
    },
  };
}

function toolsOf(count: number) {
  return Array.from({ length: count }, (_unused, i) => ({
    name: i % 10 === 3 ? `a_tool_with_a_very_long_name_that_does_not_fit_anywhere_${i}` : `tool_${i}`,
    description: `Does the ${i}th of many things. ${"It takes a while to say what. ".repeat(i % 5)}`,
    inputSchema: { type: "object", properties: { id: { type: "string", description: "Which one." } } },
  }));
}

function configOf({ routes }: Scale, servers: readonly ToolsServer[]): string {
  const lines = Array.from(
    { length: routes },
    (_unused, i) => `  - name: ${routeName(i)} # number ${i}
    gateways: default
    matches: [{ path: { pathPrefix: /r${i} } }]
    policies:
      rateLimit: { local: [{ requests: ${i % 7 === 0 ? 2 : 1000}, unit: Hours }] }
      directResponse: { status: ${i % 25 === 24 ? 503 : 200}, body: ok }
`,
  );
  const targets = servers.map(
    ({ url }, i) => `            - name: server${i}
              mcp: { url: "${url}" }
`,
  );
  return `config:
  adminAddr: 127.0.0.1:0
  logging: { level: "warn,access=off" }
gateways:
  default: { port: 0, address: 127.0.0.1 }
routes:
  - name: tools
    gateways: default
    matches: [{ path: { pathPrefix: /mcp } }]
    backends:
      - mcp:
          targets:
${targets.join("")}${lines.join("")}`;
}

/** Evenly over the routes, each with some more than the one before, so that there are busiest ones. */
async function sendAll(gateway: TestGateway, { routes, requests }: Scale): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: PER_TENTH });
  const send = (path: string): Promise<void> =>
    new Promise((resolve, reject) => {
      request(gateway.url() + path, { agent }, (response) => response.resume().on("end", resolve))
        .on("error", reject)
        .end();
    });
  for (let sent = 0; sent < requests; sent += PER_TENTH) {
    const nextMs = Date.now() + (requests > 1_000 ? 100 : 0);
    const batch = Array.from({ length: Math.min(PER_TENTH, requests - sent) }, (_unused, i) => {
      const number = sent + i;
      return send(`/r${(number * (1 + (number % 3))) % routes}/item/${number}?page=${number}`);
    });
    await Promise.all(batch);
    await eventually("a tenth of a second is over", () => Date.now() >= nextMs);
  }
  agent.destroy();
}
