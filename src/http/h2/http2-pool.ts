/**
 * Manages the HTTP/2 connections to one target, and opens another connection only if no open connection accepts more
 * streams. With a `fallback`, the server may choose HTTP/1.1 by ALPN, and all later requests use it.
 */
import { type ClientHttp2Session, connect } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { describeSocketError, openSocket } from "../h1/connection.ts";
import {
  CONNECT_TIMEOUT_MS,
  type HealthObserver,
  HttpClientError,
  type HttpPool,
  type HttpResponseReceiver,
  type HttpTarget,
  type OutgoingRequest,
} from "../http-client.ts";
import { createLookup, type Resolve } from "../lookup.ts";
import { endSessionLater } from "./later-ends.ts";
import { LifeSigns } from "./life-signs.ts";
import { StreamCall } from "./stream-call.ts";

const IDLE_MS = 60_000;
const LOOK_EVERY_MS = 5_000;
/** This limit applies until the server sends its own (RFC 9113 section 6.5.2 recommends at least this value). */
const FIRST_STREAMS = 100;
const HEAD = peerInput("backend/http2-head");
/** Effectively disables Node's `maxSessionMemory`. */
const SESSION_MB = 4096;

interface Link {
  readonly session: ClientHttp2Session;
  readonly lifeSigns: LifeSigns;
  readonly calls: Set<StreamCall>;
  isReady: boolean;
  isLeaving: boolean;
  served: number;
  idleSinceMs: number;
}

export function openHttp2Pool(
  target: HttpTarget,
  clock: Clock,
  resolve: Resolve | undefined,
  fallback: (() => HttpPool) | undefined,
): HttpPool {
  const links = new Set<Link>();
  const lookup = createLookup(clock, resolve);
  const isTls = target.protocol === "https";
  let http1Pool: HttpPool | undefined;
  let speaksHttp1 = false;
  let isClosed = false;

  function open(): Link {
    const socket = openSocket(target, lookup, fallback === undefined ? ["h2"] : ["h2", "http/1.1"], links.size);
    const session = connect(`${target.protocol}://${target.socketPath === undefined ? "backend" : "localhost"}`, {
      createConnection: () => socket,
      maxHeaderListPairs: HEAD.maxItems,
      maxSessionMemory: SESSION_MB,
      settings: { enablePush: false, maxHeaderListSize: HEAD.maxBytes },
    });
    endSessionLater(session);
    const link: Link = {
      session,
      lifeSigns: new LifeSigns(session, socket),
      calls: new Set(),
      isReady: false,
      isLeaving: false,
      served: 0,
      idleSinceMs: clock.monotonicMs(),
    };
    links.add(link);
    const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = target;
    const timer = clock.after(connectTimeoutMs, () =>
      fail(link, new HttpClientError("connect-timeout", `no connection within ${connectTimeoutMs} ms`)),
    );
    socket.once(isTls ? "secureConnect" : "connect", () => {
      timer.cancel();
      ready(link, socket);
    });
    const lost = (error?: Error): void => {
      timer.cancel();
      const message = error === undefined ? "the connection was closed" : describeSocketError(error);
      fail(link, new HttpClientError(link.isReady ? "response" : "connect", message, error));
    };
    socket.once("error", lost);
    session.on("error", lost);
    session.once("close", () => lost());
    session.on("goaway", () => {
      link.isLeaving = true;
    });
    return link;
  }

  function ready(link: Link, socket: Socket): void {
    const chosen = isTls ? (socket as TLSSocket).alpnProtocol : "h2";
    if (chosen === "h2") {
      link.isReady = true;
      for (const call of link.calls) call.start(link.session, false);
      return;
    }
    if (fallback === undefined) {
      fail(link, new HttpClientError("connect", "the server does not speak HTTP/2 (it did not choose h2 by ALPN)"));
      return;
    }
    speaksHttp1 = true;
    const waiting = [...link.calls];
    drop(link);
    for (const call of waiting) call.divert(openHttp1());
  }

  function openHttp1(): HttpPool {
    if (fallback === undefined) throw new Error("there is no other pool");
    http1Pool ??= fallback();
    return http1Pool;
  }

  function fail(link: Link, error: HttpClientError): void {
    const calls = [...link.calls];
    drop(link);
    // On a ready connection, the streams of its calls report the failure.
    if (!link.isReady) for (const call of calls) call.fail(error.kind, error.message, error.cause as Error | undefined);
  }

  function drop(link: Link): void {
    link.isLeaving = true;
    if (!links.delete(link)) return;
    link.session.destroy();
  }

  function take(): Link {
    for (const link of links) {
      const { maxConcurrentStreams = FIRST_STREAMS } = link.session.remoteSettings ?? {};
      if (!link.isLeaving && !link.session.closed && link.calls.size < maxConcurrentStreams) return link;
    }
    return open();
  }

  function send(
    request: OutgoingRequest,
    receiver: HttpResponseReceiver,
    health: HealthObserver | undefined,
  ): StreamCall["attempt"] {
    const link = take();
    const call = new StreamCall(request, receiver, health, target.protocol, () => {
      link.calls.delete(call);
      link.served += 1;
      link.idleSinceMs = clock.monotonicMs();
      if (link.calls.size === 0 && (link.isLeaving || isClosed)) drop(link);
    });
    link.calls.add(call);
    // The start is deferred, because the caller must have the call before its first callback.
    if (link.isReady) process.nextTick(() => call.start(link.session, link.served > 0));
    return call.attempt;
  }

  const timer = clock.every(LOOK_EVERY_MS, () => {
    const nowMs = clock.monotonicMs();
    for (const link of links) {
      if (link.calls.size === 0) {
        if (nowMs - link.idleSinceMs >= IDLE_MS) drop(link);
      } else if (link.isReady && link.lifeSigns.hasDied(LOOK_EVERY_MS))
        link.session.destroy(new Error("the server does not answer a PING"));
    }
  });

  return {
    send(request, receiver, health) {
      if (speaksHttp1 || (request.upgrade !== undefined && fallback !== undefined))
        return openHttp1().send(request, receiver, health);
      return send(request, receiver, health);
    },
    connections() {
      const more = http1Pool?.connections() ?? { open: 0, idle: 0 };
      return {
        open: links.size + more.open,
        idle: [...links].filter(({ calls }) => calls.size === 0).length + more.idle,
      };
    },
    close() {
      isClosed = true;
      timer.cancel();
      http1Pool?.close();
      for (const link of links) if (link.calls.size === 0) drop(link);
    },
  };
}
