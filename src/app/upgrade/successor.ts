/**
 * Implements the old process's side of an upgrade, which starts the program from disk with its listening sockets.
 */
import { spawn } from "node:child_process";
import { isOneFile } from "../../base/embedded-files.ts";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import type { ServiceManager } from "../../base/service-manager.ts";
import { type FromPredecessor, type FromSuccessor, HANDED_SOCKETS, type HandedSocket } from "./messages.ts";

/** File descriptors 0 to 3 are the standard streams and the IPC channel. */
const FIRST_FD = 4;

export interface Successor {
  readonly pid: number;
  send(message: FromPredecessor): void;
  /** Resolves when the process has exited. */
  kill(): Promise<void>;
}

export interface SuccessorEvents {
  message(message: FromSuccessor): void;
  /** Called if the process exits or cannot be started. */
  ended(reason: string): void;
}

export function startSuccessor(
  sockets: readonly HandedSocket[],
  environment: Readonly<Record<string, string | undefined>>,
  events: SuccessorEvents,
): Successor {
  const handed = sockets.map((socket, i) => ({ ...socket, fd: FIRST_FD + i }));
  const own = process.argv.slice(isOneFile() ? 2 : 1);
  fileDescriptors.checkChild();
  const child = spawn(process.execPath, [...process.execArgv, ...own], {
    stdio: ["inherit", "inherit", "inherit", "ipc", ...sockets.map(({ fd }) => fd)],
    env: {
      ...environment,
      [HANDED_SOCKETS]: JSON.stringify(handed),
      // The successor receives the service manager's sockets through `HANDED_SOCKETS`, so these variables are removed.
      LISTEN_FDS: undefined,
      LISTEN_PID: undefined,
      LISTEN_FDNAMES: undefined,
    },
    // Both processes stay in one process group and get the signals of the terminal.
    detached: false,
  });
  child.on("message", (message) => events.message(message as FromSuccessor));
  child.on("error", (error) => events.ended(error.message));
  const exited = new Promise<void>((resolve) => {
    child.on("exit", (code, signal) => {
      resolve();
      const ended = (): void => events.ended(signal === null ? `exit code ${code}` : `signal ${signal}`);
      // Its last messages arrive before the channel closes.
      if (child.connected) child.once("disconnect", ended);
      else ended();
    });
    child.on("error", () => resolve());
  });
  return {
    pid: child.pid ?? 0,
    send: (message) => void child.send(message, () => undefined),
    kill() {
      child.kill("SIGKILL");
      return exited;
    },
  };
}

export function notifyingManager(
  manager: ServiceManager | undefined,
  events: SuccessorEvents,
  start: (events: SuccessorEvents) => Successor,
): Successor {
  if (manager === undefined) return start(events);
  const message = (said: FromSuccessor): void => {
    if (said.type !== "ready") {
      events.message(said);
      return;
    }
    manager.mainProcess(successor.pid).then(
      () => events.message(said),
      (error: Error) => events.ended(`could not notify systemd: ${error.message}`),
    );
  };
  const successor = start({ ...events, message });
  return successor;
}
