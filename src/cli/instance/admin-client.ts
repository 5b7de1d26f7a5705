/**
 * Sends requests to a gateway's admin interface over loopback, a Unix socket, or a Kubernetes port-forward.
 */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import type { Duplex } from "node:stream";
import { LineSplitter, LineTooLong } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { CliError, printable } from "../terminal/terminal.ts";

const LINES = peerInput("gateway/trace");
const RESPONSE = peerInput("gateway/admin-response");

const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;

export interface AdminAddress {
  /** Identifies the gateway in messages, for example `127.0.0.1:15000`. */
  readonly display: string;
  readonly host?: string;
  readonly port?: number;
  readonly socketPath?: string;
  connect?(): Promise<Duplex>;
  close?(): void;
}

export interface AdminResponse {
  readonly status: number;
  readonly body: Buffer;
}

export interface AdminClient {
  readonly display: string;
  /** Rejects unless the status is 2xx. */
  get(path: string, options?: CallOptions): Promise<AdminResponse>;
  post(path: string, options?: CallOptions): Promise<AdminResponse>;
  json<T>(path: string, field: keyof T & string): Promise<T>;
  stream(path: string, onChunk: (chunk: Buffer) => void): Promise<AdminStream>;
  close(): void;
}

export interface AdminStream {
  /** Resolves with whether the response was complete. Rejects with the error thrown by `onChunk`. */
  readonly ended: Promise<boolean>;
  stop(): void;
}

export interface CallOptions {
  readonly body?: string;
  readonly timeoutMs?: number;
  /** With a name such as `cpu profile`, error messages contain the name and the status. */
  readonly showStatusOf?: string;
}

const TIMEOUT_MS = 15_000;
const IS_IT_A_GATEWAY = "is that a gateway's admin interface? (-p <port>, --admin-socket <path>)";
const OWN_NOT_FOUND = /^(?:not found; the list of endpoints|no request |no connection has |the history is off)/;

export function createAdminClient(address: AdminAddress): AdminClient {
  async function open(method: string, path: string, options: CallOptions): Promise<IncomingMessage> {
    const connection = await address.connect?.();
    return new Promise((resolve, reject) => {
      const call: ClientRequest = request({
        method,
        path,
        // The admin interface checks the Host header to prevent DNS rebinding.
        headers: {
          host: "localhost",
          connection: "close",
          ...(options.body ? { "content-type": "application/json" } : {}),
        },
        timeout: options.timeoutMs ?? TIMEOUT_MS,
        ...(connection
          ? { createConnection: () => connection }
          : address.socketPath === undefined
            ? { host: address.host ?? "127.0.0.1", port: address.port }
            : { socketPath: address.socketPath }),
      });
      call.on("response", resolve);
      call.on("timeout", () =>
        call.destroy(new CliError(`${address.display} did not respond in time: ${IS_IT_A_GATEWAY}`)),
      );
      call.on("error", (error: NodeJS.ErrnoException) => reject(explain(error, address)));
      call.end(options.body);
    });
  }

  async function call(method: string, path: string, options: CallOptions = {}): Promise<AdminResponse> {
    const response = await open(method, path, options);
    const body = await readWhole(response);
    const status = response.statusCode ?? 0;
    if (status < 200 || status > 299) throw responseError(response, body, address.display, options.showStatusOf);
    return { status, body };
  }

  const notOurs = (): CliError => new CliError(`unexpected response from ${address.display}: ${IS_IT_A_GATEWAY}`);

  return {
    display: address.display,
    get: (path, options) => call("GET", path, options),
    post: (path, options) => call("POST", path, options),
    async json<T>(path: string, field: keyof T & string) {
      const { body } = await call("GET", path);
      let value: unknown;
      try {
        value = readJson(RESPONSE, body);
      } catch {
        throw notOurs();
      }
      if (typeof value !== "object" || value === null || !(field in value)) throw notOurs();
      return value as T;
    },
    async stream(path, onChunk) {
      const response = await open("GET", path, {});
      if (response.statusCode !== 200) throw responseError(response, await readWhole(response), address.display);
      if (!/^(?:text\/event-stream|application\/jsonl)/.test(response.headers["content-type"] ?? "")) {
        response.destroy();
        throw notOurs();
      }
      return follow(response, onChunk);
    },
    close: () => address.close?.(),
  };
}

/** Splits a stream into lines. An incomplete last line is dropped. Throws a CliError if a line is too long. */
export function lineReader(onLine: (line: string) => void): (chunk: Buffer) => void {
  const lines = new LineSplitter(LINES, onLine);
  return (chunk) => {
    try {
      lines.push(chunk);
    } catch (error) {
      if (error instanceof LineTooLong) throw new CliError("a line of the stream is longer than 64 MiB");
      throw error;
    }
  };
}

function follow(response: IncomingMessage, onChunk: (chunk: Buffer) => void): AdminStream {
  let failure: unknown;
  response.on("data", (chunk: Buffer) => {
    try {
      if (failure === undefined) onChunk(chunk);
    } catch (error) {
      failure = error;
      response.destroy();
    }
  });
  response.on("error", () => undefined);
  const ended = new Promise<boolean>((resolve, reject) => {
    response.once("close", () => (failure === undefined ? resolve(response.complete) : reject(failure)));
  });
  return { ended, stop: () => void response.destroy() };
}

const MAX_MESSAGE_CHARS = 4_000;

function responseError(
  { statusCode = 0, statusMessage = "" }: IncomingMessage,
  body: Buffer,
  display: string,
  what?: string,
): CliError {
  // Indents continuation lines, so that text from another server cannot pass for output of gwctl.
  const message = printable(errorText(body.toString().trim())).slice(0, MAX_MESSAGE_CHARS).replaceAll("\n", "\n  ");
  const isOtherServer = statusCode < 400 || (statusCode === 404 && !OWN_NOT_FOUND.test(message));
  if (what !== undefined)
    return new CliError(
      `${what} returned ${statusCode} ${statusMessage}: ${isOtherServer ? IS_IT_A_GATEWAY : message}`,
    );
  if (isOtherServer) return new CliError(`unexpected response from ${display}: ${IS_IT_A_GATEWAY}`);
  // A question that the gateway does not accept is wrong usage, such as an option that gwctl rejects itself.
  const exitCode = statusCode === 400 ? 2 : 1;
  return new CliError(message === "" ? `${display} reported an error without a reason` : message, exitCode);
}

function errorText(text: string): string {
  if (!text.startsWith("{")) return text;
  try {
    const { error } = readJson(RESPONSE, text) as { error?: unknown };
    return typeof error === "string" ? error : text;
  } catch {
    return text;
  }
}

function readWhole(response: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    response.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > MAX_RESPONSE_BYTES) response.destroy(new CliError("the response is larger than 64 MiB"));
    });
    response.on("end", () => resolve(Buffer.concat(chunks)));
    response.on("error", reject);
    response.on("aborted", () =>
      reject(new CliError("the gateway closed the connection before the response was complete")),
    );
  });
}

function explain(error: NodeJS.ErrnoException, { display }: AdminAddress): Error {
  if (error instanceof CliError) return error;
  switch (error.code) {
    case "ECONNREFUSED":
    case "ENOENT":
      return new CliError(
        `no gateway answers at ${display}: is it running? If config.adminAddr is not the default, use -p <port>, -p [::1]:<port>, or --admin-socket <path>`,
      );
    case "EACCES":
      return new CliError(`${display} belongs to another user: run gwctl as the user that runs the gateway`);
    case "ECONNRESET":
      return new CliError(`${display} closed the connection: ${IS_IT_A_GATEWAY}`);
    default:
      return new CliError(
        error.code?.startsWith("HPE_")
          ? `${display} does not speak HTTP: ${IS_IT_A_GATEWAY}`
          : `${display}: ${error.message}`,
      );
  }
}
