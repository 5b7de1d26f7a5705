/**
 * The MCP backend behind a plain HTTP server, without policies and pipeline, for tests that need their own clock or
 * internal state.
 */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Clock } from "../../../src/base/clock.ts";
import { createMemoryBudget, type MemoryBudget } from "../../../src/base/memory-budget.ts";
import { Owner } from "../../../src/base/owner.ts";
import { createTasks, type Tasks } from "../../../src/base/tasks.ts";
import type { Backend, BackendEnv, BackendRun, PreparedCall, ResponseReceiver } from "../../../src/core/backend.ts";
import { Exchange, NO_BODY } from "../../../src/core/exchange.ts";
import { tokenPrincipal } from "../../../src/core/principal.ts";
import { asGatewayError, errorReply, type Reply } from "../../../src/core/reply.ts";
import type { McpAccess, RequestAttributes } from "../../../src/core/request-attributes.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { mcp } from "../../../src/mcp/backend.ts";
import { Hub } from "../../../src/mcp/hub.ts";
import type { Logger } from "../../../src/record/log/logger.ts";
import { createMemoryStore } from "../../../src/store/memory-store.ts";
import { ownedStore } from "../../../src/store/owned-store.ts";
import { createSigningKey } from "../../../src/store/signing-key.ts";
import { testEnv } from "../exchange.ts";
import { patientClock } from "./patient-clock.ts";

export interface ServedBackend {
  readonly url: string;
  readonly backend: Backend;
  readonly hub: Hub;
  readonly tasks: Tasks;
  readonly memory: MemoryBudget;
  /** Applied to the next requests. */
  attributes: RequestAttributes;
  access: McpAccess | undefined;
  /** The attributes of the last request. */
  last: Exchange | undefined;
  close(): Promise<void>;
}

export async function serveMcp(
  config: unknown,
  options: {
    clock?: Clock;
    environment?: Record<string, string>;
    messageBytes?: number;
    logger?: Logger;
    files?: Record<string, string>;
  } = {},
): Promise<ServedBackend> {
  const clock = options.clock ?? patientClock;
  const tasks = createTasks(clock);
  const store = createMemoryStore(clock);
  const { messageBytes } = options;
  const memory = createMemoryBudget(clock, messageBytes === undefined ? {} : { messageBytes });
  let hub: Hub | undefined;
  const env: BackendEnv = {
    ...testEnv,
    clock,
    memory,
    logger: options.logger ?? testEnv.logger,
    store: ownedStore(store, Owner.standalone),
    signingKey: createSigningKey(store, clock, testEnv.logger).of(Owner.standalone),
    tasks,
    name: "test",
    trustedHosts: [],
    requiresCredential: false,
    tls: undefined,
    machine: { resolvePath: (path) => path, environment: options.environment ?? {} },
    readFile: (path) => options.files?.[path] ?? testEnv.readFile(path),
    acquire: (_key, _definition, open) => {
      const thing = open();
      if (thing instanceof Hub) hub = thing;
      return thing;
    },
  };
  const backend = mcp.compile(mcp.schema.parse(config), env);
  const served: ServedBackend = {
    url: "",
    backend,
    hub: hub as unknown as Hub,
    tasks,
    memory,
    attributes: {},
    access: undefined,
    last: undefined,
    async close() {
      server.closeAllConnections();
      await Promise.all([new Promise((resolve) => server.close(resolve)), served.hub.close()]);
    },
  };
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => void handle(served, backend, clock, req, res));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(served, { url: `http://127.0.0.1:${port}/mcp` });
}

async function handle(
  served: ServedBackend,
  backend: Backend,
  clock: Clock,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const exchange = exchangeOf(req, clock);
  Object.assign(exchange.attributes, served.attributes);
  const { jwt } = served.attributes;
  if (jwt) exchange.authenticated(tokenPrincipal(jwt, JSON.stringify(jwt)));
  exchange.mcp.access = served.access;
  served.last = exchange;
  try {
    const prepared = await backend.prepare(exchange, { model: false, call: false });
    if ("status" in prepared) send(res, prepared);
    else call(prepared, res);
  } catch (error) {
    send(res, errorReply(asGatewayError(error)));
  }
}

function call(prepared: PreparedCall, res: ServerResponse): void {
  let run: BackendRun | undefined;
  let isOver = false;
  const sink: ResponseReceiver = {
    isWatched: false,
    requestSent: () => undefined,
    resultReceived: () => undefined,
    attempt: () => undefined,
    received: () => undefined,
    missed: () => undefined,
    next: () => false,
    head: (status, headers) => void res.writeHead(status, [...headers.pairs]),
    data: (chunk) => res.write(chunk),
    end: () => {
      isOver = true;
      res.end();
    },
    fail: (error) => {
      isOver = true;
      if (res.headersSent) res.destroy();
      else send(res, errorReply(asGatewayError(error)));
    },
    problem: () => undefined,
    upgraded: () => undefined,
  };
  res.on("drain", () => run?.resume());
  res.on("close", () => {
    if (!isOver) run?.abort();
  });
  run = prepared.call(sink);
}

function send(res: ServerResponse, reply: Reply): void {
  res.writeHead(reply.status, [...reply.headers.pairs]);
  res.end(reply.body);
}

function exchangeOf(req: IncomingMessage, clock: Clock): Exchange {
  const [path = "/", query = ""] = (req.url ?? "/").split("?");
  const length = req.headers["content-length"];
  const hasBody = length !== undefined || req.headers["transfer-encoding"] !== undefined;
  return new Exchange({
    id: "test",
    listener: "test",
    source: { address: req.socket.remoteAddress ?? "", port: req.socket.remotePort ?? 0 },
    startedAt: clock.now(),
    startedMs: clock.monotonicMs(),
    request: {
      method: req.method ?? "GET",
      scheme: "http",
      namesHttps: false,
      host: req.headers.host ?? "",
      path,
      rawPath: path,
      query,
      version: "1.1",
      headers: HeaderList.fromRaw(req.rawHeaders),
      body: hasBody
        ? {
            kind: "stream",
            stream: Object.assign(req, { peek: () => undefined }),
            length: length === undefined ? undefined : Number(length),
            taken: false,
          }
        : NO_BODY,
    },
  });
}
