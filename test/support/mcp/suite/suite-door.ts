/**
 * A proxy between the conformance suite and the gateways. It distributes requests to the gateways, and adds and
 * removes the server prefix of the suite's fixed names.
 */
import { createServer, type IncomingMessage, type ServerResponse, request as sendRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { mirrorHeader, readMirrorHeader } from "../../../../src/mcp/protocol/mirror-headers.ts";

interface Message {
  method?: string;
  params?: {
    name?: string;
    uri?: string;
    ref?: { name?: string; uri?: string };
    notifications?: { resourceSubscriptions?: string[] };
  };
}

export interface Door {
  readonly url: string;
  close(): Promise<void>;
}

/** `prefix` is the name of the target whose names the suite knows; undefined: names pass as they are. */
export async function openDoor(gateways: readonly string[], prefix?: string): Promise<Door> {
  let turn = 0;
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const base = gateways[turn++ % gateways.length] ?? "";
    pass(req, res, base, prefix).catch(() => res.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function pass(
  req: IncomingMessage,
  res: ServerResponse,
  base: string,
  prefix: string | undefined,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  const { "content-length": _, connection: __, ...headers } = req.headers;
  const name = headers["mcp-name"];
  if (prefix !== undefined && typeof name === "string") headers["mcp-name"] = inwardHeader(name, headers, prefix);
  const outgoing = sendRequest(`${base}${req.url ?? ""}`, { method: req.method ?? "GET", headers, agent: false });
  outgoing.on("error", () => res.destroy());
  outgoing.on("response", (answer) => {
    const { "content-length": ___, "transfer-encoding": ____, connection: _____, ...rest } = answer.headers;
    res.writeHead(answer.statusCode ?? 500, rest);
    res.flushHeaders();
    answer.on("error", () => res.destroy());
    if (prefix === undefined) answer.pipe(res);
    else deliverLines(answer, res, prefix);
  });
  res.on("close", () => outgoing.destroy());
  outgoing.end(prefix === undefined || body.length === 0 ? body : inward(body.toString(), prefix));
}

/** Events and JSON answers are lines; a name never stands on two. */
function deliverLines(answer: IncomingMessage, res: ServerResponse, prefix: string): void {
  const lines = createInterface({ input: answer, crlfDelay: Number.POSITIVE_INFINITY });
  lines.on("line", (line) => res.write(`${line.replaceAll(`${prefix}_`, "").replaceAll(`${prefix}+`, "")}\n`));
  lines.on("error", () => res.destroy());
  lines.on("close", () => res.end());
}

function inward(text: string, prefix: string): string {
  let message: Message;
  try {
    message = JSON.parse(text) as Message;
  } catch {
    return text;
  }
  const { method, params } = message;
  if (typeof params !== "object" || params === null) return text;
  const tool = (name: string): string => `${prefix}_${name}`;
  const resource = (uri: string): string => `${prefix}+${uri}`;
  if ((method === "tools/call" || method === "prompts/get") && typeof params.name === "string")
    params.name = tool(params.name);
  if (method?.startsWith("resources/") && typeof params.uri === "string") params.uri = resource(params.uri);
  if (method === "completion/complete" && params.ref?.name !== undefined) params.ref.name = tool(params.ref.name);
  if (method === "completion/complete" && params.ref?.uri !== undefined) params.ref.uri = resource(params.ref.uri);
  const watched = params.notifications?.resourceSubscriptions;
  if (method === "subscriptions/listen" && watched && params.notifications)
    params.notifications.resourceSubscriptions = watched.map(resource);
  return JSON.stringify(message);
}

/** The header that repeats the name (2026 era). */
function inwardHeader(name: string, headers: IncomingMessage["headers"], prefix: string): string {
  const separator = String(headers["mcp-method"]).startsWith("resources/") ? "+" : "_";
  const plain = readMirrorHeader(name);
  return plain === undefined ? name : mirrorHeader(`${prefix}${separator}${plain}`);
}
