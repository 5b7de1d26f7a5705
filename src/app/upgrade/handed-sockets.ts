/**
 * Hands listening sockets to the new process of an upgrade, so that connections in the accept queue are preserved.
 * Node.js does not expose file descriptors of sockets, so they are found in `/proc`.
 */
import { closeSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { SourceList } from "../../config/load/load.ts";
import type { WrittenProcess } from "../../config/schema/schema.ts";
import type { InheritedSockets } from "../../pipeline/listen/inherited-sockets.ts";
import type { HandedSocket } from "./messages.ts";

const LISTENING = "0A";

export interface ListeningSocket {
  readonly fd: number;
  readonly port: number;
  readonly family: 4 | 6;
  /** Distinguishes the sockets that several threads opened for the same address. */
  readonly thread: number;
}

/** Throws if `/proc` is not available. */
export function listeningSockets(): ListeningSocket[] {
  const open = new Map<string, number>();
  for (const name of readdirSync("/proc/self/fd")) {
    const inode = inodeOf(name);
    if (inode !== undefined && !open.has(inode)) open.set(inode, Number(name));
  }
  const counts = new Map<string, number>();
  return ([4, 6] as const).flatMap((family) =>
    listeningInodes(readFileSync(`/proc/self/net/tcp${family === 6 ? "6" : ""}`, "utf8")).flatMap(
      ({ inode, local, port }) => {
        const fd = open.get(inode);
        if (fd === undefined) return [];
        const thread = (counts.get(local) ?? 0) + 1;
        counts.set(local, thread);
        return [{ fd, port, family, thread }];
      },
    ),
  );
}

function inodeOf(name: string): string | undefined {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${name}`))?.[1];
  } catch {
    // The descriptor was closed in the meantime.
    return undefined;
  }
}

/**
 * Each row of `/proc/net/tcp` starts with the number, local address, remote address, state, five other fields, and the
 * inode.
 */
export function listeningInodes(table: string): { inode: string; local: string; port: number }[] {
  return table
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/);
      const port = Number.parseInt(local.slice(local.lastIndexOf(":") + 1), 16);
      return state === LISTENING ? [{ inode, local, port }] : [];
    });
}

/** Throws if the configuration or a socket cannot be handed over. */
export function handedSockets(
  sources: SourceList,
  { adminAddr, statsAddr }: WrittenProcess,
  listeners: ReadonlyMap<string, number>,
  process: { readonly admin: number | undefined; readonly stats: number | undefined },
  threads: number,
): HandedSocket[] {
  if (Array.isArray(sources) && sources.includes("-"))
    throw new Error("the configuration was read from standard input, which cannot be read again");
  if ([adminAddr, statsAddr].some((address) => address?.startsWith("unix:")))
    throw new Error(
      "an admin or stats address is a unix socket, which cannot be handed over: use an IP address or off",
    );
  const names = new Map([...listeners].map(([name, port]) => [port, name]));
  return listeningSockets().flatMap((socket): HandedSocket[] => {
    const name = names.get(socket.port);
    if (name !== undefined) return [{ ...socket, threads, kind: "listener", name }];
    if (socket.port === process.admin) return [{ ...socket, kind: "process", name: "operators" }];
    return socket.port === process.stats ? [{ ...socket, kind: "process", name: "scrapers" }] : [];
  });
}

export type HandedSockets = ReturnType<typeof createHandedSockets>;

export function createHandedSockets(sockets: readonly HandedSocket[]) {
  const forListeners = sockets.filter(({ kind }) => kind === "listener");
  return {
    forListeners,
    /** The number of threads of the previous process, or 0 if it had no listeners. */
    threads: Math.max(0, ...forListeners.map(({ threads = 1 }) => threads)),
    forProcess: (audience: string) => (host: string) =>
      sockets.find(({ name, kind, family }) => {
        return kind === "process" && name === audience && family === (host.includes(":") ? 6 : 4);
      })?.fd,
    /** Connections to an open but unused socket would never be accepted. */
    closeUnused(inherited: InheritedSockets): void {
      for (const { fd } of inherited.unused()) {
        if (!sockets.some((one) => one.fd === fd)) continue;
        inherited.remove(fd);
        closeSync(fd);
      }
    },
  };
}
