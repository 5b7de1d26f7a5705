/**
 * Builds an example shell command for the first MCP server, model, or route of this gateway.
 */
import type { Dump } from "./dump.ts";
import { type Endpoint, endpointsOf } from "./endpoints.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "curl", version: "1" } },
};

/** Returns undefined if no route can be called with a single path. */
export function exampleCommand(dump: Dump | undefined): string | undefined {
  const mcp = endpointsOf(dump, "mcp")[0];
  if (mcp) return post(mcp, mcp.path, "application/json, text/event-stream", INITIALIZE);
  const llm = endpointsOf(dump, "ai")[0];
  if (llm) {
    const base = llm.path.replace(/\/$/, "");
    const path = base.endsWith("/v1") ? base : `${base}/v1`;
    const model = modelOf(dump, llm);
    return post(llm, `${path}/chat/completions`, undefined, { model, messages: [{ role: "user", content: "Hello!" }] });
  }
  for (const route of dump?.routes ?? []) {
    const listener = dump?.listeners.find(({ name }) => route.gateways.includes(name));
    const paths = route.matches.map(({ path: { exact, pathPrefix } }) => exact ?? pathPrefix);
    const path = paths.find((one) => one !== undefined && !one.startsWith("/.well-known"));
    if (listener && path !== undefined) return `curl -i http://127.0.0.1:${listener.port}${path}`;
  }
  return undefined;
}

function post({ port, host }: Endpoint, path: string, accept: string | undefined, body: unknown): string {
  const headers = [
    ...(host === undefined ? [] : [`host: ${host}`]),
    "content-type: application/json",
    ...(accept === undefined ? [] : [`accept: ${accept}`]),
  ];
  return [
    `curl -i http://127.0.0.1:${port}${path}`,
    ...headers.map((header) => `-H '${header}'`),
    `-d '${JSON.stringify(body)}'`,
  ].join(" ");
}

function modelOf(dump: Dump | undefined, { backends }: Endpoint): string {
  const found = dump?.backends.find(({ name }) => backends.includes(name)) as
    | { models?: readonly string[] }
    | undefined;
  return found?.models?.find((name) => !name.includes("*")) ?? "demo";
}
