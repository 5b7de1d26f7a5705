/**
 * MCP servers that record what they receive, behind a gateway with rules, and all transports that a client can use.
 */
import assert from "node:assert/strict";
import { eventually } from "../eventually.ts";
import { startGateway } from "../gateway.ts";
import { LEGACY_HEADERS, openStream, type RawClient, rawClient } from "./client.ts";
import { METHODS } from "./confused-messages.ts";
import { mcpConfig } from "./gateway-config.ts";
import { modernRequest } from "./modern-client.ts";
import { readings } from "./readings.ts";
import { ALLOWED, type RecordingServer, SECRET, startRecordingServer } from "./recording-server.ts";

export const RULES = [
  `mcp.tool.name == "${ALLOWED.tool}"`,
  `mcp.prompt.name == "${ALLOWED.prompt}"`,
  `mcp.resource.uri == "${ALLOWED.resource}"`,
  { deny: `mcp.tool.name == "${SECRET.tool}"` },
];
export const PERMITTED: Readonly<Record<string, readonly string[]>> = {
  "tools/call": [ALLOWED.tool],
  "prompts/get": [ALLOWED.prompt],
  "completion/complete": [ALLOWED.prompt, ALLOWED.resource],
  "resources/read": [ALLOWED.resource],
  "resources/subscribe": [ALLOWED.resource],
  "resources/unsubscribe": [ALLOWED.resource],
  "subscriptions/listen": [ALLOWED.resource],
};
/** For each layout and transport. `CONFUSED_MESSAGES=2000 CONFUSED_SEED=7 npm test -- test/scenario/mcp-authorization` is the long run. */
export const MESSAGES = Number(process.env.CONFUSED_MESSAGES ?? 80);
export const SEED = Number(process.env.CONFUSED_SEED ?? 20_260_728);
export const FORBIDDEN = new Set(Object.values(SECRET));

export interface Layout {
  readonly name: string;
  readonly eras: readonly ("legacy" | "modern")[];
  readonly prefixMode?: string;
  readonly isPrefixed?: true;
}

export const LAYOUTS: readonly Layout[] = [
  { name: "one server", eras: ["legacy"] },
  { name: "one server of 2026", eras: ["modern"] },
  { name: "one server with prefixes", eras: ["legacy"], prefixMode: "always", isPrefixed: true },
  { name: "two servers", eras: ["legacy", "modern"], isPrefixed: true },
  { name: "two servers without prefixes", eras: ["legacy", "legacy"], prefixMode: "never" },
];

export type Send = (text: string) => Promise<number>;

export interface Stage {
  readonly servers: readonly RecordingServer[];
  readonly url: string;
  readonly client: RawClient;
  spell(kind: "name" | "uri", name: string): string;
  transports(): Promise<{ name: string; send: Send; close(): Promise<void> }[]>;
}

export async function onStage(
  layout: Layout,
  run: (stage: Stage) => Promise<void>,
  rules: unknown[] = RULES,
  policies: object = { mcpAuthorization: { rules } },
): Promise<void> {
  const servers = await Promise.all(layout.eras.map((era) => startRecordingServer(era)));
  const targets = servers.map(({ url }, i) => ({ name: `t${i}`, mcp: { url } }));
  const settings = layout.prefixMode === undefined ? {} : { prefixMode: layout.prefixMode };
  const route = rules.length === 0 ? {} : { policies };
  const gateway = await startGateway(mcpConfig(targets, settings, route));
  try {
    const url = `${gateway.url()}/mcp`;
    const client = rawClient(url);
    client.version = "2025-03-26";
    await client.initialize();
    await run({
      servers,
      url,
      client,
      spell: (kind, name) => (layout.isPrefixed ? `t0${kind === "uri" ? "+" : "_"}${name}` : name),
      transports: () => transports(gateway.url(), client),
    });
  } finally {
    await gateway.close();
    await Promise.all(servers.map((server) => server.close()));
  }
}

/** The same text over everything that a client can speak. */
export async function transports(
  base: string,
  client: RawClient,
): Promise<{ name: string; send: Send; close(): Promise<void> }[]> {
  const old = await openStream(`${base}/sse`, { headers: { accept: "text/event-stream" } });
  await eventually("the endpoint is named", () => old.events.length > 0);
  const endpoint = `${base}${old.events[0]?.data}`;
  const post = async (url: string, headers: Record<string, string>, body: string): Promise<number> => {
    const response = await fetch(url, { method: "POST", headers, body });
    // The stream of a subscription has no end.
    if (body.includes("subscriptions")) await response.body?.cancel();
    else await response.arrayBuffer();
    return response.status;
  };
  const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "old", version: "1" } };
  await post(endpoint, LEGACY_HEADERS, JSON.stringify({ jsonrpc: "2.0", id: "i", method: "initialize", params }));
  const answered = (id: string): Promise<void> =>
    eventually(`the answer to ${id}`, () =>
      old.events.some(({ event, data }) => event === "message" && JSON.parse(data).id === id),
    );
  await answered("i");
  const meta = modernRequest("x");
  return [
    { name: "streamable HTTP", send: async (text) => (await client.post(text)).status, close: async () => undefined },
    {
      name: "HTTP+SSE",
      send: (text) => post(endpoint, LEGACY_HEADERS, text),
      // Answers come over the stream: a last one says that those before it were served.
      close: async () => {
        await post(endpoint, LEGACY_HEADERS, '{"jsonrpc":"2.0","id":"last","method":"tools/list"}');
        await answered("last");
        old.close();
      },
    },
    {
      name: "2026",
      // The envelope and the headers are as they must be, so that only the rest is judged.
      send: (text) => {
        const envelope = JSON.stringify(JSON.parse(meta.body).params._meta);
        const method = METHODS.find((one) => text.includes(one)) ?? METHODS.find((one) => text.includes(escaped(one)));
        const name = [...Object.values(ALLOWED), ...FORBIDDEN].find((one) => text.includes(one));
        const headers = { ...meta.headers, "mcp-method": method ?? "", "mcp-name": name ?? "" };
        return post(client.url, headers, text.replace('"arguments"', `"_meta":${envelope},"arguments"`));
      },
      close: async () => undefined,
    },
  ];
}

export function escaped(method: string): string {
  return method.replace("/", "\\/");
}

/** How many messages of a server were looked at already. */
export const judged = new WeakMap<RecordingServer, number>();

export function assertNothingForbidden(servers: readonly RecordingServer[]): void {
  for (const server of servers) {
    const fresh = server.received.slice(judged.get(server) ?? 0);
    judged.set(server, server.received.length);
    for (const { body, headers } of fresh) {
      const bad = readings(body).filter(({ method, name }) => !PERMITTED[method]?.includes(name));
      assert.deepEqual(bad, [], `the server received ${body}`);
      assert.ok(!FORBIDDEN.has(String(headers["mcp-name"])), `the server received the header for ${body}`);
    }
  }
}
