/**
 * Implements the backend of a forward proxy. A request goes to the host that the client names, and CONNECT opens a
 * tunnel to it. The address that the name resolves to is checked, and the connection uses the checked address.
 */

import { LRUCache } from "lru-cache";
import { z } from "zod";
import {
  type Backend,
  type BackendEnv,
  type BackendRun,
  defineBackend,
  type ResponseReceiver,
} from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { machineOf } from "../../core/policy.ts";
import { ResponseFilter } from "../../core/response-filter.ts";
import { isAddressRange } from "../../http/address-range.ts";
import { HostHealth, openHttpPool } from "../../http/client/http-pool.ts";
import { parseProxiedHost } from "../../http/egress-addresses.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import { describeSocketError, openSocket } from "../../http/h1/connection.ts";
import { HeaderList } from "../../http/headers.ts";
import { HttpClientError, type HttpPool, type HttpTarget } from "../../http/http-client.ts";
import { createLookup } from "../../http/lookup.ts";
import { sendTo } from "../host/backend.ts";

const RESPONSE_HEAD_TIMEOUT_MS = 60_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** The least recently used pool is closed. */
const MAX_HOSTS = 1_000;

interface Destination {
  readonly target: HttpTarget;
  readonly display: string;
}

export const dynamic = defineBackend({
  key: "dynamic",
  doc: "The host that the client names, for a gateway with `forwardProxy`. CONNECT opens a tunnel to it.",
  schema: z.strictObject({
    ports: z
      .array(z.int().min(1).max(65_535))
      .min(1)
      .default([80, 443])
      .describe("The ports that clients can use. Default: 80 and 443."),
    allow: z
      .array(z.string().refine(isAddressRange, "expected an IP address or a CIDR range such as 10.0.0.0/8"))
      .default([])
      .describe(
        "Addresses or CIDR ranges that are otherwise refused: those of this machine, private and link-local networks, and metadata services.",
      ),
  }),
  protection: () => "none",

  compile(config, env): Backend {
    machineOf(env, "use a `dynamic` backend");
    const egress = env.egress.to("client", config.allow);
    const ports = new Set(config.ports);
    const pools = env.acquire(
      `dynamic ${env.name}`,
      { config, tls: env.tls, protocol: env.protocol },
      () => openPools(env),
      (open) => open.close(),
    );
    function send(exchange: Exchange, call: ResponseReceiver): BackendRun {
      let destination: Destination;
      try {
        destination = destinationOf(exchange, env, ports, egress);
      } catch (error) {
        call.fail(error);
        return NO_CALL;
      }
      if (exchange.request.method === "CONNECT") return connect(destination, call, env);
      const { pool, health } = pools.find(destination);
      const { display, target } = destination;
      return sendTo(pool, display, target.protocol, exchange, new RefusalFilter(call, display), health, true);
    }

    return {
      attributes: { name: env.name, type: "static", protocol: "http" },
      defaultTimeoutMs: RESPONSE_HEAD_TIMEOUT_MS,
      routing: { acceptsConnect: true },
      prepare: (exchange) => ({ call: (receiver) => send(exchange, receiver) }),
      describe: () => ({ dynamic: config, hosts: pools.size() }),
    };
  },
});

interface Pools {
  find(destination: Destination): { readonly pool: HttpPool; readonly health: HostHealth };
  size(): number;
  close(): void;
}

function openPools(env: BackendEnv): Pools {
  const pools = new LRUCache<string, { pool: HttpPool; health: HostHealth }>({
    max: MAX_HOSTS,
    dispose: ({ pool }) => pool.close(),
  });
  return {
    find({ target, display }) {
      const key = `${target.protocol} ${display}`;
      const known = pools.get(key);
      if (known !== undefined) return known;
      const opened = {
        pool: openHttpPool(target, env.clock),
        health: new HostHealth(env.clock, { ejected: () => undefined, recovered: () => undefined }),
      };
      pools.set(key, opened);
      return opened;
    },
    size: () => pools.size,
    close: () => pools.clear(),
  };
}

function destinationOf(
  { request }: Exchange,
  env: BackendEnv,
  ports: ReadonlySet<number>,
  egress: EgressGuard,
): Destination {
  const named = parseProxiedHost(request.host);
  if (named === undefined)
    throw new GatewayError("bad_request", { message: "bad request: the host is not in canonical form" });
  const isConnect = request.method === "CONNECT";
  const isTls = !isConnect && (env.tls !== undefined || request.namesHttps);
  const protocol = isTls ? "https" : "http";
  const { host, port = protocol === "https" ? 443 : 80 } = named;
  if (!ports.has(port)) throw refused(`the port ${port} is not in \`ports\``);
  if (egress.fault({ host }) !== undefined) throw refused(`${host} is not a public address`);
  const target: HttpTarget = {
    protocol,
    host,
    port,
    egress,
    ...(isTls && env.tls !== undefined ? { tls: env.tls } : {}),
  };
  return { target, display: `${host.includes(":") ? `[${host}]` : host}:${port}` };
}

function refused(detail: string): GatewayError {
  return new GatewayError("authorization_denied", { message: "the forward proxy does not allow this host", detail });
}

/** A name without an address that may be used is refused, and not a failure of the server. */
class RefusalFilter extends ResponseFilter {
  readonly #display: string;

  constructor(call: ResponseReceiver, display: string) {
    super(call);
    this.#display = display;
  }

  head(status: number, headers: HeaderList): void {
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.call.end(trailers);
  }

  fail(error: unknown): void {
    const { cause } = error as { readonly cause?: { readonly code?: string; readonly message?: string } };
    this.call.fail(cause?.code === "EACCES" ? refused(`${this.#display}: ${cause.message ?? ""}`) : error);
  }
}

const NO_CALL: BackendRun = { abort: () => undefined, resume: () => undefined };

function connect({ target, display }: Destination, call: ResponseReceiver, env: Pick<BackendEnv, "clock">): BackendRun {
  call.attempt(display, undefined);
  const socket = openSocket(target, createLookup(env.clock), [], 0);
  socket.setNoDelay(true);
  socket.pause();
  let isOver = false;
  const timer = env.clock.after(CONNECT_TIMEOUT_MS, () => socket.destroy(new Error("connect timeout")));
  const settle = (): boolean => {
    timer.cancel();
    if (isOver) return false;
    isOver = true;
    return true;
  };
  socket.on("error", (error: Error & { code?: string }) => {
    if (!settle()) return;
    if (error.code === "EACCES") call.fail(refused(`${display}: ${error.message}`));
    else call.fail(new HttpClientError("connect", describeSocketError(error), error));
  });
  socket.once("connect", () => {
    if (!settle()) return;
    call.upgraded(200, new HeaderList(), socket);
  });
  return {
    abort() {
      if (settle()) socket.destroy();
    },
    resume: () => undefined,
  };
}
