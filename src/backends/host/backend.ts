/**
 * Implements a plain HTTP backend (spec 2.1 `host`). The request is forwarded with its Host header, without hop-by-hop
 * headers, and with extended `x-forwarded-*` headers.
 */

import { z } from "zod";
import {
  type Backend,
  type BackendEnv,
  type BackendRun,
  defineBackend,
  type ResponseReceiver,
} from "../../core/backend.ts";
import { DeferredRun } from "../../core/deferred-run.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { machineOf } from "../../core/policy.ts";
import { markAddress, markLocal } from "../../core/schema.ts";
import { addedForwardedFor } from "../../core/source.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { type HealthEvents, HostHealth, openHttpPool } from "../../http/client/http-pool.ts";
import { END_TO_END_HEADERS, PROXY_REQUEST_HEADERS } from "../../http/header-rules.ts";
import { addForwarded, asksForWebSocket } from "../../http/headers.ts";
import type { HttpPool, OutgoingRequest } from "../../http/http-client.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import { withHttpChoice } from "./http-choice.ts";

const RESPONSE_HEAD_TIMEOUT_MS = 60_000;

export const host = defineBackend({
  key: "host",
  doc: "A plain HTTP server: `host:port`, an `http://` or `https://` URL, or `unix:/path`.",
  schema: markAddress(
    markLocal(
      z.string().superRefine((text, context) => {
        const parsed = parseAddress(text);
        if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.error });
      }),
      { what: "a unix socket", isLocal: (text) => /^unix:/i.test(String(text)) },
    ),
  ).describe("`host:port`, `http://host[:port]`, `https://host[:port]` or `unix:/path`."),
  protection: () => "none",

  compile(config, env): Backend {
    const parsed = parseAddress(config);
    if (!parsed.ok) throw new Error(parsed.error);
    if (parsed.target.socketPath !== undefined) machineOf(env, "use a unix socket");
    const named = { ...parsed.target, egress: env.egress };
    const target = withHttpChoice(
      env.tls ? { ...named, protocol: "https" as const, tls: env.tls } : named,
      env.protocol,
    );
    const pool = env.acquire(
      `http-pool ${config}`,
      target,
      () => openHttpPool(target, env.clock),
      (open) => open.close(),
    );
    const health = env.acquire(
      `http-health ${config}`,
      target,
      () => new HostHealth(env.clock, healthEvents(config, env)),
    );
    return {
      attributes: { name: env.name, type: "static", protocol: "http" },
      routing: { health, servers: { name: config } },
      defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
      prepare: (exchange) => ({
        call: (receiver) => sendTo(pool, parsed.display, target.protocol, exchange, receiver, health),
      }),
      describe: () => ({ host: config, connections: pool.connections(), ...health.describe() }),
    };
  },
});

export function healthEvents(host: string, env: Pick<BackendEnv, "logger" | "metrics">): HealthEvents {
  const logger = env.logger.for("backends");
  const ejections = env.metrics
    .counter("gateway_backend_rests_total", "Times that a server was ejected because it did not accept a connection.", [
      "backend",
    ])
    .labels(host);
  return {
    ejected(reason, forMs) {
      ejections.add();
      logger.warn("backend cannot be reached and is ejected", { backend: host, forMs, reason });
    },
    recovered: () => logger.info("backend can be reached again", { backend: host }),
  };
}

export function sendTo(
  pool: HttpPool,
  display: string,
  scheme: "http" | "https",
  exchange: Exchange,
  call: ResponseReceiver,
  health: HostHealth,
  isForwardProxy = false,
): BackendRun {
  const { request } = exchange;
  const { headers } = request;
  const upgrade = asksForWebSocket(request.method, headers) ? "websocket" : undefined;
  const wantsTrailers = headers.get("te")?.toLowerCase() === "trailers";
  headers.removeHopByHop(END_TO_END_HEADERS);
  if (isForwardProxy) for (const name of PROXY_REQUEST_HEADERS) headers.delete(name);
  else addForwarded(headers, addedForwardedFor(exchange.source), request.scheme, exchange.originalHost);
  // The backend receives the ID that the gateway logs.
  headers.set("x-request-id", exchange.id);
  // HTTP/1.0 clients may omit Host, but HTTP/1.1 servers require it.
  headers.set("host", request.host === "" ? display.replace(/^unix:.*/, "localhost") : request.host);
  const { body } = request;
  if (body.kind === "bytes") headers.set("content-length", String(body.bytes.length));
  if (body.kind === "stream") body.taken = true;
  const sent: OutgoingRequest = {
    method: request.method,
    path: pathAndQuery(request),
    headers,
    body: body.kind === "bytes" ? body.bytes : body.kind === "stream" ? body.stream : undefined,
    upgrade,
    wantsTrailers,
  };
  const begin = (): BackendRun => {
    call.attempt(display, exchange.trace && { over: "http", scheme, request: sent });
    health.requestSent();
    return pool.send(sent, call, health);
  };
  return request.sign === undefined ? begin() : new DeferredRun(call, signed(request, scheme, sent, begin), NOTHING);
}

const NOTHING = (): void => undefined;

async function signed(
  request: GatewayRequest,
  protocol: "http" | "https",
  { method, path, headers, body }: OutgoingRequest,
  begin: () => BackendRun,
): Promise<() => BackendRun> {
  if (body !== undefined && !Buffer.isBuffer(body))
    throw new GatewayError("backend_unavailable", { detail: "a body that a policy streams cannot be signed" });
  const hostname = headers.get("host") ?? "";
  await request.sign?.({
    method,
    protocol,
    hostname,
    port: undefined,
    path,
    headers,
    body: body === undefined ? [] : [body],
  });
  return begin;
}
