/**
 * Finds sockets that the service manager opened (systemd socket activation). A listener whose port or name matches a
 * socket uses it instead of binding.
 */
import { readFileSync, readlinkSync } from "node:fs";

/** systemd passes sockets from this descriptor on, after the standard streams. */
const FIRST_FD = 3;
const LISTENING = "0A";

interface InheritedSocket {
  readonly fd: number;
  /** The socket unit sets this name with `FileDescriptorName=`. */
  readonly name: string;
  /** The port is undefined if it cannot be determined. */
  readonly port: number | undefined;
}

export interface InheritedSockets {
  /**
   * Matches by port first, then by name. Returns each socket once, because closing a listener closes its descriptor.
   */
  take(listener: { readonly name: string; readonly port: number }): number | undefined;
  unused(): readonly InheritedSocket[];
  /** Removes an unused socket before it is closed, so that no later listener takes its descriptor. */
  remove(fd: number): void;
}

export function createInheritedSockets(sockets: readonly InheritedSocket[]): InheritedSockets {
  const left = new Set(sockets);
  return {
    take({ name, port }) {
      const all = [...left];
      const found = all.find((one) => one.port === port) ?? all.find((one) => one.name === name);
      if (found) left.delete(found);
      return found?.fd;
    },
    unused: () => [...left],
    remove(fd) {
      for (const socket of left) if (socket.fd === fd) left.delete(socket);
    },
  };
}

/** Returns no sockets unless `LISTEN_PID` is `pid`. */
export function inheritedSockets(
  environment: Readonly<Record<string, string | undefined>>,
  pid: number,
  portOf: (fd: number) => number | undefined = portOfDescriptor,
): InheritedSocket[] {
  const { LISTEN_FDS = "", LISTEN_PID = "", LISTEN_FDNAMES = "" } = environment;
  if (LISTEN_PID !== String(pid) || !/^[1-9]\d{0,2}$/.test(LISTEN_FDS)) return [];
  const names = LISTEN_FDNAMES.split(":");
  return Array.from({ length: Number(LISTEN_FDS) }, (_, index) => ({
    fd: FIRST_FD + index,
    name: names[index] ?? "",
    port: portOf(FIRST_FD + index),
  }));
}

/** Reads the port from /proc, because Node would have to take over the descriptor. */
function portOfDescriptor(fd: number): number | undefined {
  try {
    const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
    if (inode === undefined) return undefined;
    for (const table of ["tcp", "tcp6"]) {
      const port = portOfInode(readFileSync(`/proc/self/net/${table}`, "utf8"), inode);
      if (port !== undefined) return port;
    }
  } catch {
    // The descriptor or /proc does not exist, so only the name is available.
  }
  return undefined;
}

/** The columns of `/proc/net/tcp` are number, local address, remote address, state, five others, and inode. */
export function portOfInode(table: string, inode: string): number | undefined {
  for (const line of table.split("\n").slice(1)) {
    const columns = line.trim().split(/\s+/);
    const [, local = "", , state, , , , , , found] = columns;
    if (found === inode && state === LISTENING) return Number.parseInt(local.slice(local.lastIndexOf(":") + 1), 16);
  }
  return undefined;
}
