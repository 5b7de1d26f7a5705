/**
 * Manages all open listeners. Applying a configuration opens new listeners, switches existing listeners to their new
 * routes, and drains removed listeners.
 */

import { wait } from "../../base/clock.ts";
import type { Task, Tasks } from "../../base/tasks.ts";
import type { Listener, Topology } from "../../core/topology.ts";
import { boundAddress } from "../../http/backend-address.ts";
import type { Metrics } from "../../record/log/metrics.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { createRouteTable } from "../route/match-route.ts";
import type { InheritedSockets } from "./inherited-sockets.ts";
import { type OpenListener, openListener } from "./listener.ts";
import type { ListenerAddress, ListenerEnv } from "./listener-env.ts";
import { countTcpConnections, openTcpListener } from "./tcp/tcp-listener.ts";

export interface Listeners {
  /** Rejects with an Error of one line that names the field. */
  apply(topology: Topology): Promise<void>;
  ports(): ReadonlyMap<string, number>;
  active(): { connections: number; requests: number };
  notServing(): string[];
  /** Stops accepting, waits for requests up to the limit, then closes the remaining connections. */
  close(limitMs: number, lingerMs?: number): Promise<void>;
}

interface Entry {
  readonly open: OpenListener;
  readonly mode: ListenerMode;
  /** True if the service manager opened the socket, which cannot be reopened once it is closed. */
  readonly isInherited: boolean;
  readonly task: Task;
  names: string[];
}

/** Keeps the log line readable. */
const SHOWN_PATHS = 20;
const ADDRESS_ERRORS = new Set(["EADDRNOTAVAIL", "ENOTFOUND", "EAI_AGAIN", "EINVAL"]);

const NEEDS_RESTART =
  "the service manager opened this port's socket; another address, or TLS on or off, needs a restart";

export interface ListenersEnv extends ListenerEnv {
  readonly tasks: Tasks;
  readonly metrics: Metrics;
  readonly inherited: InheritedSockets;
  /** Set if several threads share the ports. */
  sharedPort?(listener: Listener): number | undefined;
}

export function createListeners(env: ListenersEnv): Listeners {
  const entries = new Map<string, Entry>();
  const draining = new Set<OpenListener>();
  let configured: readonly Listener[] = [];
  const tcpEnv = { ...env, countConnection: countTcpConnections(env.metrics) };

  const activeByGateway = (what: "connections" | "requests") => () =>
    [...entries.values()].map(({ open, names }) => [{ gateway: names[0] ?? "" }, open.active()[what]] as const);
  env.metrics.gauge("gateway_connections", "Open connections of clients.", activeByGateway("connections"));
  env.metrics.gauge(
    "gateway_requests_in_flight",
    "Requests whose response has not ended.",
    activeByGateway("requests"),
  );

  async function openOne(listener: Listener): Promise<Entry> {
    try {
      const fd = env.inherited.take(listener);
      const { address, port, tls } = listener;
      const at: ListenerAddress = env.sharedPort
        ? { address, port: env.sharedPort(listener) ?? port, tls, isShared: true }
        : { address, port, tls };
      const served = toServed(listener);
      const open = await (listener.tcp === undefined
        ? openListener(at, served, env, fd)
        : openTcpListener(at, served, tcpEnv, fd));
      const task = env.tasks.start("listener", listener.name, () => ({ port: open.port, ...open.active() }));
      return { open, mode: modeOf(listener), isInherited: fd !== undefined, task, names: [listener.name] };
    } catch (error) {
      throw bindError(listener, error);
    }
  }

  function retire(key: string, entry: Entry): void {
    entries.delete(key);
    entry.task.end();
    draining.add(entry.open);
    void entry.open.drain().then(() => {
      draining.delete(entry.open);
      entry.open.destroy();
    });
  }

  /** Reopens the listeners that were closed for a configuration that is then rejected. */
  async function reopen(keys: ReadonlySet<string>): Promise<void> {
    for (const listener of configured.filter((one) => keys.has(socketKey(one)))) {
      try {
        entries.set(socketKey(listener), await openOne(listener));
      } catch (error) {
        env.logger.error("no longer listening", { gateway: listener.name, error: (error as Error).message });
      }
    }
  }

  return {
    async apply(topology) {
      const opened = new Map<string, Entry>();
      const released = new Set<string>();
      const next = new Map(topology.listeners.map((listener) => [socketKey(listener), listener] as const));
      try {
        for (const [key, listener] of next) {
          if (entries.get(key)?.mode === modeOf(listener)) continue;
          // The old socket on the same port must be closed first, because its address or TLS setting differs.
          for (const [oldKey, old] of [...entries]) {
            if (oldKey !== key && (listener.port === 0 || old.open.port !== listener.port)) continue;
            if (old.isInherited) throw new Error(`${listener.writtenAt("port")}: ${NEEDS_RESTART}`);
            retire(oldKey, old);
            released.add(oldKey);
          }
          opened.set(key, await openOne(listener));
        }
      } catch (error) {
        for (const { open, task } of opened.values()) {
          task.end();
          open.destroy();
        }
        await reopen(released);
        throw error;
      }
      configured = topology.listeners;
      for (const [key, entry] of opened) {
        entries.set(key, entry);
        env.logger.info("listening", {
          gateway: entry.names[0],
          ...listeningFields(next.get(key) as Listener, entry.open.port),
        });
      }
      for (const [key, entry] of [...entries]) {
        const listener = next.get(key);
        if (!listener) {
          env.logger.info("no longer listening", { port: entry.open.port });
          retire(key, entry);
          continue;
        }
        entry.names = [listener.name];
        entry.open.serve(toServed(listener));
        if (listener.tls) entry.open.setTls(listener.tls);
      }
    },
    ports: () =>
      new Map([...entries.values()].flatMap(({ open, names }) => names.map((name) => [name, open.port] as const))),
    active: () =>
      [...entries.values()]
        .map(({ open }) => open.active())
        .reduce(
          (sum, one) => ({ connections: sum.connections + one.connections, requests: sum.requests + one.requests }),
          { connections: 0, requests: 0 },
        ),
    notServing: () => configured.filter((listener) => !entries.has(socketKey(listener))).map(({ name }) => name),
    async close(limitMs, lingerMs) {
      const all = [...[...entries.values()].map(({ open }) => open), ...draining];
      const drained = Promise.all(all.map((open) => open.drain(limitMs > 0 ? lingerMs : 0)));
      if (limitMs > 0) await Promise.race([drained, wait(env.clock, limitMs)]);
      for (const { task } of entries.values()) task.end();
      for (const open of all) open.destroy();
      entries.clear();
    },
  };
}

export function toServed(listener: Listener): Served {
  return { listener, table: createRouteTable(listener.routes) };
}

/**
 * Listeners with the same address and port share a socket across configurations. A listener with port 0 is identified
 * by its name.
 */
function socketKey(listener: Listener): string {
  return `${listener.address ?? "*"}:${listener.port === 0 ? `0/${listener.name}` : listener.port}`;
}

type ListenerMode = "http" | "https" | "tcp";

/** A socket is reopened if its mode changes. */
function modeOf({ tcp, tls }: Listener): ListenerMode {
  if (tcp !== undefined) return "tcp";
  return tls === undefined ? "http" : "https";
}

function listeningFields(listener: Listener, port: number): { url: string; paths: string[] } {
  const paths = listener.routes.flatMap(({ matches }) =>
    matches.map(({ path }) =>
      "exact" in path ? path.exact : "pathPrefix" in path ? prefixText(path.pathPrefix) : "*",
    ),
  );
  return {
    url: `${modeOf(listener)}://${boundAddress(listener.address, port)}`,
    paths: [...new Set(paths)].slice(0, SHOWN_PATHS),
  };
}

function prefixText(prefix: string): string {
  return prefix.endsWith("/") ? `${prefix}*` : `${prefix}/*`;
}

export function bindError(listener: Listener, error: unknown): Error {
  const { code = "" } = error as NodeJS.ErrnoException;
  const field = listener.address !== undefined && ADDRESS_ERRORS.has(code) ? "address" : "port";
  const at = `${listener.address ?? "*"}:${listener.port}`;
  return new Error(`${listener.writtenAt(field)}: cannot listen on ${at}: ${explainBindError(error)}`);
}

export function explainBindError(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "EADDRINUSE")
    return "the address is already in use: stop the program that listens there (another gateway?) or choose another one";
  if (code === "EACCES") return "permission denied (ports below 1024 need privileges)";
  if (code === "EADDRNOTAVAIL") return "the address does not exist on this machine";
  return message;
}
