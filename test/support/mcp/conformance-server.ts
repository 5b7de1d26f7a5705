/**
 * The fixture of the conformance suite as a process: `stdio`, or `http [port]`, which prints its URL. `--modern-only`
 * and `--legacy-only` omit one protocol version, so that the gateway must convert.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  localhostAllowedHostnames,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { createFeatureServer } from "./conformance-features.ts";

const modernOnly = process.argv.includes("--modern-only");
const legacyOnly = process.argv.includes("--legacy-only");

if (process.argv.includes("http")) serveHttp(Number(process.argv[process.argv.indexOf("http") + 1] ?? 0) || 0);
else serveStandardStreams();

function serveStandardStreams(): void {
  if (legacyOnly) {
    const server = featureServer("legacy");
    void server.connect(new StdioServerTransport());
    return;
  }
  serveStdio(
    ({ era }) => {
      const server = featureServer(era);
      return server;
    },
    { legacy: modernOnly ? "reject" : "serve" },
  );
}

function featureServer(era: "legacy" | "modern"): Server {
  const server: Server = createFeatureServer({
    era,
    changed: (list) => void (list === "tools" ? server.sendToolListChanged() : server.sendPromptListChanged()),
    clientCapabilities: () => server.getClientCapabilities() ?? {},
  });
  return server;
}

function serveHttp(port: number): void {
  const modern = createMcpHandler(
    () =>
      createFeatureServer({
        era: "modern",
        changed: (list) => (list === "tools" ? modern.notify.toolsChanged() : modern.notify.promptsChanged()),
        clientCapabilities: () => ({}),
      }),
    {
      legacy: "reject",
    },
  );
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();

  async function legacy(request: Request): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? undefined : sessions.get(id);
    if (id !== null && !known) return new Response("session not found", { status: 404 });
    if (known) return known.handleRequest(request);
    const events: { id: string; stream: string; message: unknown }[] = [];
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      onsessioninitialized: (sessionId) => void sessions.set(sessionId, transport),
      onsessionclosed: (sessionId) => void sessions.delete(sessionId),
      retryInterval: 100,
      eventStore: {
        async storeEvent(stream, message) {
          events.push({ id: `${stream}_${events.length}`, stream, message });
          return `${stream}_${events.length - 1}`;
        },
        async replayEventsAfter(lastEventId, { send }) {
          const from = events.findIndex((event) => event.id === lastEventId);
          const stream = events[from]?.stream ?? "";
          for (const event of events.slice(from + 1))
            if (event.stream === stream) await send(event.id, event.message as never);
          return stream;
        },
      },
    });
    const server = featureServer("legacy");
    await server.connect(transport);
    return transport.handleRequest(request);
  }

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const abort = new AbortController();
    res.on("close", () => abort.abort());
    const make = (): Request =>
      new Request(`http://${req.headers.host ?? "localhost"}${req.url ?? "/"}`, {
        method: req.method ?? "GET",
        headers: Object.entries(req.headers).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, String(value)] as [string, string]],
        ),
        signal: abort.signal,
        ...(body === "" ? {} : { body }),
      });
    const foreign = hostHeaderValidationResponse(make(), localhostAllowedHostnames());
    if (foreign) {
      res.writeHead(foreign.status).end();
      return;
    }
    const isLegacy = legacyOnly || (!modernOnly && (await isLegacyRequest(make())));
    const response = isLegacy ? await legacy(make()) : await modern.fetch(make());
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body)
      Readable.fromWeb(response.body as never)
        .on("error", () => res.destroy())
        .pipe(res);
    else res.end();
  }

  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => void handle(req, res).catch(() => res.destroy()));
  server.listen(port, "127.0.0.1", () =>
    process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp\n`),
  );
  // As a child over stdio would: when whoever started it goes, so does it.
  process.stdin.on("end", () => process.exit(0)).resume();
}
