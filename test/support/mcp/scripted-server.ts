/**
 * An MCP server that follows a script for the first requests of a method and otherwise responds correctly. It runs
 * over stdio (this file as a program), streamable HTTP or HTTP+SSE (in this process), with either protocol version.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pathToFileURL } from "node:url";
import { fixturePath } from "./fixture.ts";
import { mutated } from "./mutate.ts";

/** What the server does instead of answering; `$ID` stands for the id of the request. */
export type Step =
  /** A message in the frame of the transport (a line, an event, a body), once or more often. */
  | { readonly message: string; readonly repeat?: number }
  /** Bytes without a frame: on stdout, or in the body of the HTTP answer. */
  | { readonly raw: string; readonly repeat?: number }
  /** The head of the HTTP answer; other transports have none. */
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>> }
  /** The answer that a good server gives. */
  | { readonly good: true }
  /** The same in its frame, spoilt from this seed. */
  | { readonly mutated: number }
  /** The process or the connection ends. */
  | { readonly end: "exit" | "close" }
  /** The HTTP answer stays open. */
  | { readonly stay: true };

export interface Script {
  readonly name: string;
  readonly era?: "legacy" | "modern";
  /** For each method what is done to the first request, to the second, and so on. */
  readonly steps: Readonly<Record<string, readonly (readonly Step[])[]>>;
  /** What is done to requests that do not say their protocol version, as modern ones must. */
  readonly withoutEnvelope?: readonly Step[];
}

export interface ScriptedServer {
  /** For the configuration. */
  readonly target: object;
  close(): Promise<void>;
}

export type Transport = "stdio" | "http" | "sse";

interface Request {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
}

export async function startScripted(transport: Transport, script: Script): Promise<ScriptedServer> {
  if (transport !== "stdio") return startRemote(transport, script);
  const stdio = { cmd: process.execPath, args: [fixturePath("scripted-server"), JSON.stringify(script)] };
  return { target: { name: script.name, stdio }, close: async () => undefined };
}

/** What is done about a request; good answers after the script has ended. */
function player(script: Script): (request: Request) => readonly Step[] {
  const played = new Map<string, number>();
  return ({ method = "", params }) => {
    const meta = params?._meta as Record<string, unknown> | undefined;
    if (script.withoutEnvelope && meta?.["io.modelcontextprotocol/protocolVersion"] === undefined)
      return script.withoutEnvelope;
    const count = played.get(method) ?? 0;
    played.set(method, count + 1);
    return script.steps[method]?.[count] ?? [{ good: true }];
  };
}

function withId(text: string, id: unknown): string {
  return text.replaceAll("$ID", () => JSON.stringify(id));
}

function goodAnswer({ name, era }: Script, { id, method, params = {} }: Request): string {
  const reply = (result: object): string => {
    const modern = era === "modern" ? { resultType: "complete", ttlMs: 0, cacheScope: "private" } : {};
    return JSON.stringify({ jsonrpc: "2.0", id, result: { ...result, ...modern } });
  };
  const isKnown = era === "modern" ? method !== "initialize" : method !== "server/discover";
  switch (isKnown ? method : undefined) {
    case "initialize":
      return reply({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {}, resources: {}, prompts: {}, logging: {} },
        serverInfo: { name, version: "1" },
      });
    case "server/discover":
      return reply({
        supportedVersions: ["2026-07-28"],
        capabilities: { tools: {}, resources: {}, prompts: {} },
        _meta: { "io.modelcontextprotocol/serverInfo": { name, version: "1" } },
      });
    case "tools/list":
      return reply({ tools: [{ name: "echo", inputSchema: { type: "object" } }] });
    case "prompts/list":
      return reply({ prompts: [{ name: "greeting" }] });
    case "resources/list":
      return reply({ resources: [{ uri: `test://${name}/a`, name: "a" }] });
    case "resources/templates/list":
      return reply({ resourceTemplates: [{ uriTemplate: `test://${name}/{x}`, name: "t" }] });
    case "tools/call":
      return reply({ content: [{ type: "text", text: `echo of ${name}` }] });
    case "resources/read":
      return reply({ contents: [{ uri: params.uri, text: name }] });
    case "ping":
    case "logging/setLevel":
      return reply({});
    default:
      return JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: `Method not found: ${method}` } });
  }
}

async function startRemote(transport: "http" | "sse", script: Script): Promise<ScriptedServer> {
  const play = player(script);
  const streams = new Map<string, ServerResponse>();
  let nextSession = 1;

  function http(req: IncomingMessage, res: ServerResponse, request: Request): void {
    if (req.method !== "POST") {
      res.writeHead(req.method === "DELETE" ? 200 : 405).end();
      return;
    }
    if (request.id === undefined || request.method === undefined) {
      res.writeHead(202).end();
      return;
    }
    if (request.method === "initialize") res.setHeader("mcp-session-id", `session-${nextSession++}`);
    const steps = play(request);
    const isEvents = steps.filter((step) => "message" in step || "good" in step || "mutated" in step).length > 1;
    for (const step of steps) {
      if ("status" in step) res.writeHead(step.status, step.headers);
      else if ("end" in step) {
        res.flushHeaders();
        // What was written is on its way by then: a connection that ends before its answer began is another case.
        setImmediate(() => res.destroy());
      } else if ("raw" in step) res.write(withId(step.raw, request.id).repeat(step.repeat ?? 1));
      else if (!("stay" in step)) {
        if ("mutated" in step) {
          const spoilt = mutated(
            isEvents ? asEvent(goodAnswer(script, request)) : goodAnswer(script, request),
            step.mutated,
          );
          if (!res.headersSent)
            res.writeHead(200, { "content-type": isEvents ? "text/event-stream" : "application/json" });
          res.write(spoilt);
          continue;
        }
        const text = "good" in step ? goodAnswer(script, request) : withId(step.message, request.id);
        if (!res.headersSent)
          res.writeHead(200, { "content-type": isEvents ? "text/event-stream" : "application/json" });
        const times = "message" in step ? (step.repeat ?? 1) : 1;
        res.write((isEvents ? asEvent(text) : text).repeat(times));
      }
    }
    if (!steps.some((step) => "stay" in step || "end" in step)) res.end();
  }

  function oldPair(req: IncomingMessage, res: ServerResponse, request: Request): void {
    if (req.method === "GET") {
      const session = `s${nextSession++}`;
      streams.set(session, res);
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`event: endpoint\ndata: /messages?session=${session}\n\n`);
      return;
    }
    const stream = streams.get(new URL(req.url ?? "", "http://x").searchParams.get("session") ?? "");
    res.writeHead(202).end("Accepted");
    if (request.id === undefined || request.method === undefined) return;
    for (const step of play(request)) {
      if ("end" in step) stream?.destroy();
      else if ("raw" in step) stream?.write(withId(step.raw, request.id).repeat(step.repeat ?? 1));
      else if ("mutated" in step) stream?.write(mutated(asEvent(goodAnswer(script, request)), step.mutated));
      else if ("good" in step) stream?.write(asEvent(goodAnswer(script, request)));
      else if ("message" in step) stream?.write(asEvent(withId(step.message, request.id)).repeat(step.repeat ?? 1));
    }
  }

  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const request = body === "" ? {} : (JSON.parse(body) as Request);
      if (transport === "http") http(req, res, request);
      else oldPair(req, res, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/${transport === "http" ? "mcp" : "sse"}`;
  return {
    target: { name: script.name, [transport === "http" ? "mcp" : "sse"]: { url } },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function asEvent(text: string): string {
  return `event: message\n${text
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}\n`)
    .join("")}\n`;
}

/** As a program: the script is the argument. */
function runStdio(script: Script): void {
  const play = player(script);
  let rest = "";
  process.stdin.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const request = JSON.parse(line) as Request;
      if (request.id === undefined || request.method === undefined) continue;
      for (const step of play(request)) {
        if ("end" in step) process.exit(step.end === "exit" ? 3 : 0);
        else if ("raw" in step) process.stdout.write(withId(step.raw, request.id).repeat(step.repeat ?? 1));
        else if ("mutated" in step) process.stdout.write(mutated(`${goodAnswer(script, request)}\n`, step.mutated));
        else if ("good" in step) process.stdout.write(`${goodAnswer(script, request)}\n`);
        else if ("message" in step)
          process.stdout.write(`${withId(step.message, request.id)}\n`.repeat(step.repeat ?? 1));
      }
    }
  });
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href)
  runStdio(JSON.parse(process.argv[2] ?? "{}") as Script);
