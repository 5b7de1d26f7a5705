/**
 * Talks to one gateway's admin interface: over loopback, a unix socket, or a connection that somebody else opened
 * (a port-forward). Every failure becomes one line that says what to do.
 */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import type { Duplex } from "node:stream";
import { CliError } from "./cli-error.ts";
import { printable } from "./terminal.ts";

/** A dump of 5,000 routes is a few megabytes. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export interface AdminAddress {
  /** For messages: `127.0.0.1:15000`. */
  readonly display: string;
  readonly port?: number;
  readonly socketPath?: string;
  connect?(): Promise<Duplex>;
  /** Frees what reaching it needed. */
  close?(): void;
}

export interface AdminAnswer {
  readonly status: number;
  readonly body: Buffer;
}

export interface AdminClient {
  readonly display: string;
  /** Rejects unless the status is 2xx. */
  get(path: string, options?: CallOptions): Promise<AdminAnswer>;
  post(path: string, options?: CallOptions): Promise<AdminAnswer>;
  json<T>(path: string): Promise<T>;
  /** The body as it comes; ends when the gateway ends it or `stop` was called. */
  stream(path: string, onChunk: (chunk: Buffer) => void): Promise<{ ended: Promise<void>; stop(): void }>;
  close(): void;
}

export interface CallOptions {
  readonly body?: string;
  readonly timeoutMs?: number;
  /** Named in a failure: `cpu profile`. */
  readonly what?: string;
}

const TIMEOUT_MS = 30_000;

export function createAdminClient(address: AdminAddress): AdminClient {
  async function open(method: string, path: string, options: CallOptions): Promise<IncomingMessage> {
    const connection = await address.connect?.();
    return new Promise((resolve, reject) => {
      const call: ClientRequest = request({
        method,
        path,
        // The name that the admin interface accepts whatever way leads to it.
        headers: {
          host: "localhost",
          connection: "close",
          ...(options.body ? { "content-type": "application/json" } : {}),
        },
        timeout: options.timeoutMs ?? TIMEOUT_MS,
        ...(connection
          ? { createConnection: () => connection }
          : address.socketPath === undefined
            ? { host: "127.0.0.1", port: address.port }
            : { socketPath: address.socketPath }),
      });
      call.on("response", resolve);
      call.on("timeout", () => call.destroy(new CliError(`${address.display} did not answer in time`)));
      call.on("error", (error: NodeJS.ErrnoException) => reject(explain(error, address)));
      call.end(options.body);
    });
  }

  async function call(method: string, path: string, options: CallOptions = {}): Promise<AdminAnswer> {
    const response = await open(method, path, options);
    const body = await readWhole(response);
    const status = response.statusCode ?? 0;
    if (status < 200 || status > 299) {
      const said = printable(body.toString().trim().split("\n", 1)[0] ?? "").slice(0, 300);
      throw new CliError(`${options.what ?? path} returned ${status} ${response.statusMessage ?? ""}: ${said}`);
    }
    return { status, body };
  }

  return {
    display: address.display,
    get: (path, options) => call("GET", path, options),
    post: (path, options) => call("POST", path, options),
    async json<T>(path: string) {
      const { body } = await call("GET", path);
      try {
        return JSON.parse(body.toString()) as T;
      } catch {
        throw new CliError(`${address.display}${path} is not JSON: is a gateway's admin interface there?`);
      }
    },
    async stream(path, onChunk) {
      const response = await open("GET", path, {});
      if (response.statusCode !== 200) {
        const said = (await readWhole(response)).toString().trim();
        throw new CliError(`${path.split("?", 1)[0]} returned ${response.statusCode}: ${printable(said)}`);
      }
      response.on("data", onChunk);
      const ended = new Promise<void>((resolve) => response.once("close", resolve));
      response.on("error", () => undefined);
      return { ended, stop: () => void response.destroy() };
    },
    close: () => address.close?.(),
  };
}

function readWhole(response: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    response.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > MAX_ANSWER_BYTES) response.destroy(new CliError("the answer is larger than 64 MiB"));
    });
    response.on("end", () => resolve(Buffer.concat(chunks)));
    response.on("error", reject);
    response.on("aborted", () =>
      reject(new CliError("the gateway closed the connection before its answer was complete")),
    );
  });
}

function explain(error: NodeJS.ErrnoException, { display }: AdminAddress): Error {
  if (error instanceof CliError) return error;
  switch (error.code) {
    case "ECONNREFUSED":
    case "ENOENT":
      return new CliError(
        `no gateway answers at ${display}: is it running? If its config.adminAddr was moved, use -p <port> or --admin-socket <path>`,
      );
    case "EACCES":
      return new CliError(`${display} belongs to another user: run gwctl as the user that runs the gateway`);
    case "ECONNRESET":
      return new CliError(`${display} closed the connection: is that a gateway's admin interface?`);
    default:
      return new CliError(`${display}: ${error.message}`);
  }
}
