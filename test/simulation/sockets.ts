/**
 * Connects Node's own `net.Socket` and `net.Server` to the simulated network: a socket gets a handle whose other end is
 * a `Side`, so the code of the socket, its buffers, and its events are the real ones.
 */
import net from "node:net";
import { getSystemErrorMap } from "node:util";
import type { Faults, Listener, Network, NetworkError, Side } from "./network.ts";
import type { Scheduler, Task } from "./scheduler.ts";

interface Request {
  oncomplete?(status: number): void;
}

/** The stream handle of Node that is implemented in JavaScript (`internal/js_stream_socket`). */
interface StreamHandle {
  readBuffer(bytes: Buffer): void;
  emitEOF(): void;
  finishWrite(request: Request, status: number): void;
  finishShutdown(request: Request, status: number): void;
}

const { JSStream } = (process as unknown as { binding(name: string): { JSStream: new () => StreamHandle } }).binding(
  "js_stream",
);

/** The properties of `net.Socket` and `net.Server` that Node sets from C++ or in functions that are replaced here. */
interface OpenSocket extends net.Socket {
  connecting: boolean;
  server?: net.Server;
  _server?: net.Server;
}
interface OpenServer extends net.Server {
  _handle: unknown;
  _connections: number;
  allowHalfOpen?: boolean;
}

const ERRNO = new Map([...getSystemErrorMap()].map(([errno, [name]]) => [name, errno]));

function errnoOf(error: NetworkError): number {
  return ERRNO.get(error) ?? -1;
}

export function systemError(call: string, code: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${call} ${code}`), { code, errno: ERRNO.get(code) ?? -1, syscall: call });
}

/** Creates a handle. `connectTo` gives it its side of a connection. */
function createHandle(scheduler: Scheduler, local: string, remote: string) {
  let side: Side | undefined;
  let wantsToRead = false;
  let isClosed = false;
  const handle = new JSStream();
  const nameOf = (address: string, port: number) => (out: object) => {
    Object.assign(out, { address, port, family: "IPv4" });
    return 0;
  };
  Object.assign(handle, {
    isClosing: () => isClosed,
    close(closed?: () => void) {
      if (isClosed) return;
      isClosed = true;
      side?.close();
      // As in libuv, the `close` event follows the `error` event.
      if (closed) scheduler.after(0, () => closed.call(handle));
    },
    reset(closed?: () => void) {
      side?.abort();
      (handle as unknown as { close(closed?: () => void): void }).close(closed);
      return 0;
    },
    onreadstart() {
      wantsToRead = true;
      side?.read(true);
      return 0;
    },
    onreadstop() {
      wantsToRead = false;
      side?.read(false);
      return 0;
    },
    onwrite(request: Request, buffers: Buffer[]) {
      const [first] = buffers;
      const bytes = first !== undefined && buffers.length === 1 ? first : Buffer.concat(buffers);
      side?.write(bytes, (error) => {
        if (!isClosed) handle.finishWrite(request, error === undefined ? 0 : errnoOf(error));
      });
      return 0;
    },
    onshutdown(request: Request) {
      side?.end();
      process.nextTick(() => {
        if (!isClosed) handle.finishShutdown(request, 0);
      });
      return 0;
    },
    ref: () => undefined,
    unref: () => undefined,
    getpeername: nameOf(remote, 0),
    getsockname: nameOf(local, 0),
  });
  return {
    handle,
    connectTo(connected: Side, socket: net.Socket) {
      side = connected;
      Object.assign(handle, {
        getpeername: nameOf(side.peer.address, side.peer.port),
        getsockname: nameOf(side.address, side.port),
      });
      side.events = {
        data: (bytes) => void (isClosed || handle.readBuffer(bytes)),
        end: () => void (isClosed || handle.emitEOF()),
        failed: (error) => void socket.destroy(systemError("read", error)),
      };
      side.read(wantsToRead);
    },
  };
}

type Lookup = (
  name: string,
  options: object,
  done: (error: Error | null, addresses: readonly { address: string }[]) => void,
) => void;

interface ConnectOptions extends net.SocketConstructorOpts {
  readonly host?: string;
  readonly port?: number;
  readonly lookup?: Lookup;
}

interface ListenOptions {
  readonly host?: string;
  readonly port?: number;
  /** The descriptor of a listening socket that another process has handed over. */
  readonly fd?: number;
  readonly reusePort?: boolean;
}

interface TimedSocket extends net.Socket {
  idleTask?: Task | undefined;
  /** The timer ends when the socket closes. */
  endsTimer?: boolean;
  _unrefTimer?(): void;
}

/** `addressOf` gives the address of a process. `faultsTo` gives the faults of the connections to a backend. */
export function simulateSockets(
  network: Network,
  addressOf: (process: string) => string,
  faultsTo: (to: string) => Faults,
  lookup: Lookup,
) {
  const { scheduler } = network;
  const handles = new WeakMap<net.Socket, ReturnType<typeof createHandle>>();
  const { Socket } = net;
  const createSocket = (options: ConnectOptions): net.Socket => {
    const address = addressOf(scheduler.process);
    const ours = createHandle(network.scheduler, address, options.host ?? "");
    const socket = new Socket({ ...options, handle: ours.handle, manualStart: true } as object);
    handles.set(socket, ours);
    return socket;
  };
  net.Socket = new Proxy(Socket, {
    construct: (target, [options = {}], newTarget) =>
      "handle" in options ? Reflect.construct(target, [options], newTarget) : createSocket(options),
  });
  const connectTo = (options: ConnectOptions) => createSocket(options).connect(options as net.SocketConnectOpts);
  net.connect = net.createConnection = connectTo as typeof net.connect;

  Socket.prototype.connect = function connect(this: OpenSocket, ...args: unknown[]): net.Socket {
    const [first, second] = args;
    const options = (typeof first === "object" ? first : { port: first, host: second }) as ConnectOptions;
    const { host = "127.0.0.1", port = 0 } = options;
    const address = addressOf(scheduler.process);
    const ours = handles.get(this);
    if (ours === undefined) throw new Error("this socket is not simulated");
    this.connecting = true;
    const open = (at: string): void =>
      network.connect(address, at, port, faultsTo(at), (error, side) => {
        if (this.destroyed) side?.abort();
        else if (side === undefined) this.destroy(systemError("connect", error ?? "ECONNREFUSED"));
        else {
          ours.connectTo(side, this);
          this.connecting = false;
          this.emit("connect");
          this.emit("ready");
          if (this.readable && !this.isPaused()) this.read(0);
        }
      });
    if (net.isIP(host) !== 0) open(host);
    else
      (options.lookup ?? lookup)(host, { all: true }, (error, [first]) => {
        if (this.destroyed) return;
        if (error || first === undefined) this.destroy(error ?? systemError("getaddrinfo", "ENOTFOUND"));
        else open(first.address);
      });
    return this;
  } as typeof Socket.prototype.connect;

  net.Server.prototype.listen = function listen(this: OpenServer, ...args: unknown[]): net.Server {
    const [first, second] = args;
    const done = args.findLast((arg) => typeof arg === "function") as (() => void) | undefined;
    const options: ListenOptions =
      typeof first === "number"
        ? { port: first, ...(typeof second === "string" ? { host: second } : {}) }
        : (first as ListenOptions);
    const own = { address: addressOf(scheduler.process), port: options.port || network.freePort() };
    const listener: Listener = { process: scheduler.process, accept: acceptInto(this, scheduler) };
    const open = (): { address: string; port: number } | undefined => {
      if (options.fd !== undefined) return network.share(options.fd, listener);
      return network.listen(own.address, own.port, listener, options.reusePort) ? own : undefined;
    };
    scheduler.after(0, () => {
      const opened = open();
      if (opened === undefined) {
        this.emit("error", systemError("listen", "EADDRINUSE"));
        return;
      }
      const { address, port } = opened;
      this._handle = {
        close(closed?: () => void) {
          network.unlisten(listener);
          if (closed) scheduler.after(0, closed);
        },
        getsockname: (out: object) => void Object.assign(out, { address, port, family: "IPv4" }),
        ref: () => undefined,
        unref: () => undefined,
      };
      this.emit("listening");
    });
    if (done) this.once("listening", done);
    return this;
  } as typeof net.Server.prototype.listen;

  net.Socket.prototype.setTimeout = function setTimeout(this: TimedSocket, ms: number, onTimeout?: () => void) {
    const refresh = (): void => {
      if (this.idleTask) scheduler.cancel(this.idleTask);
      this.idleTask = ms > 0 && !this.destroyed ? scheduler.after(ms, () => this.emit("timeout")) : undefined;
    };
    // Node calls this for every read and write.
    this._unrefTimer = refresh;
    refresh();
    if (ms === 0) return this;
    if (onTimeout) this.once("timeout", onTimeout);
    if (this.endsTimer === true) return this;
    this.endsTimer = true;
    return this.once("close", () => this._unrefTimer?.());
  } as typeof net.Socket.prototype.setTimeout;
}

/** A socket of Node for a side of a connection. */
export function socketOn(side: Side, scheduler: Scheduler, allowHalfOpen = false): OpenSocket {
  const ours = createHandle(scheduler, side.address, side.peer.address);
  const options = { handle: ours.handle, allowHalfOpen, readable: true, writable: true };
  const socket = new net.Socket(options as object) as OpenSocket;
  ours.connectTo(side, socket);
  return socket;
}

function acceptInto(server: OpenServer, scheduler: Scheduler): (side: Side) => void {
  return (side) => {
    if (server.maxConnections !== undefined && server._connections >= server.maxConnections) {
      side.abort();
      server.emit("drop", {});
      return;
    }
    const socket = socketOn(side, scheduler, server.allowHalfOpen);
    server._connections += 1;
    socket.server = server;
    socket._server = server;
    server.emit("connection", socket);
  };
}
