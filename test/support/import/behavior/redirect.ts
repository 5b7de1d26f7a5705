/**
 * Sends connections of this process to a stand-in, except those to 127.0.0.1.
 */
import { Socket } from "node:net";

interface Destination {
  host?: string;
  port?: number;
  path?: string;
  lookup?: unknown;
}

/** Returns a function that ends the redirection. The stand-in's certificate is not checked. */
export function redirectConnections(port: number): () => void {
  const { connect } = Socket.prototype;
  const checked = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  Socket.prototype.connect = function redirected(this: Socket, ...args: unknown[]): Socket {
    const first = Array.isArray(args[0]) ? args[0][0] : args[0];
    const destination = first as Destination;
    if (typeof first === "object" && destination.path === undefined && destination.host !== "127.0.0.1")
      Object.assign(destination, { host: "127.0.0.1", port, lookup: undefined });
    return Reflect.apply(connect, this, args) as Socket;
  } as typeof connect;
  return () => {
    Socket.prototype.connect = connect;
    if (checked === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = checked;
  };
}
