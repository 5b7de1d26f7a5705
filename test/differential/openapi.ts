/**
 * The differential test of OpenAPI tools: an expression reads the arguments of calls as rules do, a real server reports
 * what it received, and what the description makes of that report must be the same arguments, with nothing besides.
 */
import { spawnSync } from "node:child_process";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { startGateway } from "../support/gateway.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { Random } from "../support/random.ts";
import { openProgram } from "./backends.ts";
import {
  type ApiOperation,
  type ApiReading,
  apiArguments,
  apiDescription,
  apiOperation,
  canonical,
  OWN_HEADER,
  OWN_KEY,
  readArguments,
  readRequest,
} from "./openapi-cases.ts";

export interface OpenApiOptions {
  /** `node`, or the Python of an environment with FastAPI, Uvicorn, and python-multipart. */
  readonly server: string;
  readonly count: number;
  readonly seed: number;
  readonly connections: number;
}

export interface OpenApiReport {
  readonly findings: string[];
  readonly skipped: string | undefined;
  /** Calls whose arguments were compared with the server's report. */
  compared: number;
  rejected: number;
  /** Rules cannot read names that differ only in case, so reading them is an error, and rules deny. */
  unread: number;
}

const OPERATIONS = 150;
const MAX_FINDINGS = 20;

export async function runOpenApiDifferential({
  server,
  count,
  seed,
  connections,
}: OpenApiOptions): Promise<OpenApiReport> {
  const api = server === "node" ? await openNode() : await openFastApi(server);
  const report: OpenApiReport = {
    findings: [],
    skipped: typeof api === "string" ? api : undefined,
    compared: 0,
    rejected: 0,
    unread: 0,
  };
  if (typeof api === "string") return report;
  const random = new Random(seed);
  const operations = Array.from({ length: OPERATIONS }, (_, i) => apiOperation(random, i));
  const files = { "api.json": JSON.stringify(apiDescription(operations)) };
  const gateway = await startGateway(configFor(api.host), { files });
  let left = count;
  const work = async (): Promise<void> => {
    const client = rawClient(`${gateway.url()}/mcp`);
    await client.initialize();
    for (; left > 0 && report.findings.length < MAX_FINDINGS; left--)
      await compare(client, random, random.pick(operations), report);
  };
  try {
    await Promise.all(Array.from({ length: connections }, work));
  } finally {
    await gateway.close();
    await api.close();
  }
  return report;
}

function configFor(host: string): string {
  const [name, value] = OWN_KEY;
  const openapi = {
    file: "api.json",
    server: `http://${host}`,
    auth: { query: { name, value } },
    headers: { [OWN_HEADER[0]]: OWN_HEADER[1] },
  };
  const seen = "base64.encode(bytes(toJson(mcp.tool.arguments)))";
  return JSON.stringify({
    config: { adminAddr: "off", logging: { level: "error,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        policies: { transformations: { response: { set: { "x-seen": `has(mcp.tool) ? ${seen} : ""` } } } },
        backends: [{ mcp: { targets: [{ name: "api", openapi }] } }],
      },
    ],
  });
}

async function compare(
  client: RawClient,
  random: Random,
  operation: ApiOperation,
  report: OpenApiReport,
): Promise<void> {
  const args = apiArguments(random, operation);
  const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: operation.name, arguments: args } };
  const { headers, message } = await client.post(body);
  const find = (what: string): void => {
    report.findings.push(
      `${what}: ${JSON.stringify(operation)} with ${JSON.stringify(args)}: ${JSON.stringify(message).slice(0, 2_000)}`,
    );
  };
  const text = String(message?.result?.content?.[0]?.text);
  if (message?.result?.isError === true && text.startsWith("Invalid arguments: ")) report.rejected += 1;
  else if (message?.result?.structuredContent === undefined) find("not sent");
  else if ((headers.get("x-seen") ?? "") === "") report.unread += 1;
  else {
    const seen = JSON.parse(Buffer.from(headers.get("x-seen") ?? "", "base64").toString()) as unknown;
    try {
      const read = readArguments(operation, message.result.structuredContent as ApiReading);
      report.compared += 1;
      if (canonical(read) !== canonical(seen)) find(`rules read ${canonical(seen)}, the server ${canonical(read)}`);
    } catch (error) {
      find(error instanceof Error ? error.message : String(error));
    }
  }
}

interface Api {
  readonly host: string;
  close(): Promise<void>;
}

async function openFastApi(python: string): Promise<Api | string> {
  if (spawnSync(python, ["-c", "import fastapi, uvicorn, python_multipart"]).status !== 0)
    return `${python} has no FastAPI, Uvicorn, and python-multipart`;
  return openProgram("python", python, ["test/differential/fastapi_backend.py"]);
}

async function openNode(): Promise<Api> {
  const server = createServer((req, res) => {
    read(req).then(
      (reading) => res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(reading)),
      (error: Error) => res.writeHead(500).end(error.message),
    );
  });
  // The gateway does not repeat a POST over a connection that was just closed.
  server.keepAliveTimeout = 600_000;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

async function read(req: IncomingMessage): Promise<ApiReading> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  const headers = Object.entries(req.headersDistinct).flatMap(([name, values]) =>
    (values ?? []).map((value): [string, string] => [name, value]),
  );
  return readRequest(req.url ?? "", headers, Buffer.concat(chunks));
}
