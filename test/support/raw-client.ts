/**
 * A client that sends and returns exact bytes, for requests that no well-behaved client sends.
 */
import { connect, type Socket } from "node:net";

export interface RawAnswer {
  /** Everything that arrived, as latin1. */
  readonly text: string;
  /** The status of the first response; 0 if there was none. */
  readonly status: number;
  /** The values of the `x-gateway-error` header, one per response. */
  readonly errors: readonly string[];
  /** The statuses of all responses, in order. */
  readonly statuses: readonly number[];
}

export interface RawClient {
  readonly socket: Socket;
  write(bytes: string | Buffer): void;
  /** Resolves when what has arrived contains the text. */
  until(text: string): Promise<string>;
  /** Resolves when the server closed the connection. */
  ended(patienceMs?: number): Promise<RawAnswer>;
  /** What has arrived so far. */
  received(): string;
  /** Ends with a reset instead of a clean close. */
  reset(): void;
  close(): void;
}

/** A test that waits longer than this for bytes has failed, also on a busy machine. */
const PATIENCE_MS = 60_000;

export function openRawClient(port: number, host = "127.0.0.1"): RawClient {
  // Half-open: the server's end of sending must not make us close, or a held connection would go unnoticed.
  const socket = connect({ port, host, allowHalfOpen: true });
  let text = "";
  let isClosed = false;
  const waiting = new Set<() => void>();
  const changed = (): void => {
    for (const look of [...waiting]) look();
  };
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    changed();
  });
  socket.on("error", () => undefined);
  socket.on("close", () => {
    isClosed = true;
    changed();
  });

  function wait<Result>(what: string, ready: () => Result | undefined, patienceMs = PATIENCE_MS): Promise<Result> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiting.delete(look);
        reject(new Error(`waited in vain for ${what}; received so far: ${JSON.stringify(text.slice(0, 500))}`));
      }, patienceMs);
      const look = (): void => {
        const result = ready();
        if (result === undefined) return;
        clearTimeout(timer);
        waiting.delete(look);
        resolve(result);
      };
      waiting.add(look);
      look();
    });
  }

  return {
    socket,
    write: (bytes) => void socket.write(bytes),
    until: (wanted) =>
      wait(JSON.stringify(wanted), () => {
        if (text.includes(wanted)) return text;
        if (isClosed) throw new Error(`closed before ${JSON.stringify(wanted)} came: ${JSON.stringify(text)}`);
        return undefined;
      }),
    ended: (patienceMs) => {
      // Our own half is closed only when the server has closed its half: it must not need us to.
      socket.once("end", () => socket.end());
      if (socket.readableEnded) socket.end();
      return wait("the end of the connection", () => (isClosed ? answerOf(text) : undefined), patienceMs);
    },
    received: () => text,
    reset: () => void socket.resetAndDestroy(),
    close: () => void socket.destroy(),
  };
}

/** Sends bytes and waits until the server closes the connection. */
export async function rawRequest(port: number, bytes: string | Buffer): Promise<RawAnswer> {
  const client = openRawClient(port);
  client.write(bytes);
  return client.ended();
}

/** One HTTP/1.1 request as text; `connection: close`, so that the answer ends with the connection. */
export function requestText(line: string, headers: readonly string[] = [], body = ""): string {
  return `${line}\r\n${["Host: gateway.test", "Connection: close", ...headers].join("\r\n")}\r\n\r\n${body}`;
}

function answerOf(text: string): RawAnswer {
  const statuses = [...text.matchAll(/(?:^|\n|[^\r\n])HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
  return {
    text,
    status: statuses[0] ?? 0,
    statuses,
    errors: [...text.matchAll(/^x-gateway-error: (.*)\r$/gm)].map((match) => match[1] as string),
  };
}
