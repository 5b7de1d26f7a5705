/**
 * A request that another thread must serve goes there whole, before any policy saw it, over a socket that only threads of
 * this process know: what came from the client's connection goes along in one header, behind a secret. The other thread
 * serves and records it as if the client had come to it; this one only passes bytes.
 */

import { timingSafeEqual } from "node:crypto";
import type { Backend, BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import { Exchange } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/policy.ts";
import type { Route } from "../../core/topology.ts";
import type { HttpPool } from "../../lib/http/http-client.ts";
import { pathAndQuery } from "../../lib/http/request-path.ts";
import type { Served } from "../../pipeline/phases/pipeline-env.ts";
import { createRouteTable } from "../../pipeline/route/match-route.ts";

export const HOP_HEADER = "x-gateway-hop";
const UNLIMITED = 0;
const RETRY_SECONDS = "1";

/** What the client's connection said. */
export interface Arrival {
  readonly listener: string;
  readonly address: string;
  readonly port: number;
  /** The client's address, where trusted proxies report one. */
  readonly client: string | undefined;
  /** The subject of the client's certificate. */
  readonly identity: string | undefined;
  readonly scheme: "http" | "https";
  /** The client did not name the request itself. */
  readonly isNamedHere: boolean;
}

/** A listener whose only route leads to the other thread. */
export function hopTo(pool: HttpPool, secret: string): Served {
  const backend: Backend = {
    facts: { name: "thread", type: "static", protocol: "http" },
    // The thread that serves it has its limits.
    defaultTimeoutMs: UNLIMITED,
    call: (exchange, call) => send(pool, secret, exchange, call),
    describe: () => ({}),
  };
  const policies = emptyScope("route");
  const route: Route = {
    name: "thread",
    hostnames: [],
    matches: [{ path: { pathPrefix: "/" } }],
    policies,
    backends: [{ backend, weight: 1, policies: emptyScope("backend") }],
    totalWeight: 1,
    isProtected: false,
  };
  const listener: Served["listener"] = {
    name: "thread",
    address: undefined,
    port: 0,
    protocol: "HTTP",
    tls: undefined,
    writtenAt: () => "",
    policies: emptyScope("gateway"),
    routes: [route],
    unmatched: emptyScope("route"),
  };
  return { listener, table: createRouteTable([route]) };
}

function send(pool: HttpPool, secret: string, exchange: Exchange, call: BackendCall): BackendRun {
  const { request, source } = exchange;
  const { headers, body } = request;
  const arrival: Arrival = {
    listener: exchange.listener,
    address: source.address,
    port: source.port,
    client: source.client,
    identity: source.identity,
    scheme: request.scheme,
    isNamedHere: headers.get("x-request-id") !== exchange.id,
  };
  // What it names must not be taken out before the policies of the other thread have read it.
  headers.delete("connection");
  headers.removeHopByHop();
  headers.delete("expect");
  headers.set("host", request.host === "" ? "localhost" : request.host);
  headers.set("x-request-id", exchange.id);
  headers.set(HOP_HEADER, `${secret} ${Buffer.from(JSON.stringify(arrival)).toString("base64url")}`);
  if (body.kind === "bytes") headers.set("content-length", String(body.bytes.length));
  if (body.kind === "stream") body.taken = true;
  call.attempt("thread", undefined);
  return pool.send(
    {
      method: request.method,
      // The other thread reads the request as the client sent it.
      path: pathAndQuery({ path: request.rawPath, query: request.query }),
      headers,
      body: body.kind === "bytes" ? body.bytes : body.kind === "stream" ? body.stream : undefined,
      upgrade: undefined,
    },
    {
      head: (status, answered) => call.head(status, answered),
      data: (chunk) => call.data(chunk),
      end: (trailers) => call.end(trailers),
      error: (error) =>
        call.fail(
          new GatewayError("overloaded", {
            message: "the thread that serves this route is being replaced",
            detail: error.message,
            headers: { "retry-after": RETRY_SECONDS },
          }),
        ),
      upgraded: (_status, _headers, socket) => socket.destroy(),
    },
  );
}

/** The exchange as it was in the thread that accepted the connection; undefined if nobody of us sent it. */
export function arrivedExchange(exchange: Exchange, secret: string): Exchange | undefined {
  const { request } = exchange;
  const [given = "", text = ""] = (request.headers.get(HOP_HEADER) ?? "").split(" ");
  if (!isSame(given, secret)) return undefined;
  const arrival = JSON.parse(Buffer.from(text, "base64url").toString()) as Arrival;
  request.headers.delete(HOP_HEADER);
  if (arrival.isNamedHere) request.headers.delete("x-request-id");
  return new Exchange({
    id: exchange.id,
    listener: arrival.listener,
    source: { address: arrival.address, port: arrival.port, client: arrival.client, identity: arrival.identity },
    request: { ...request, scheme: arrival.scheme },
    startedAt: exchange.startedAt,
    startedMs: exchange.startedMs,
  });
}

function isSame(given: string, secret: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(secret)];
  return one.length === other.length && timingSafeEqual(one, other);
}

function emptyScope(phase: CompiledScope["phase"]): CompiledScope {
  return {
    phase,
    access: [],
    admit: [],
    shape: [],
    parsed: [],
    admitParsed: [],
    llmRequest: [],
    sight: { tokens: false, watchedTokens: false, model: false },
    response: [],
    settle: [],
    settings: {},
    isTransparent: true,
    readsResponseBody: false,
    effectivePolicy: {},
  };
}
