/**
 * Parses bytes with Node's own parser, as a reference for the request parser. The socket is never connected, so that
 * a case costs only a few function calls.
 */
import { createServer, type IncomingMessage } from "node:http";
import { Socket } from "node:net";

export interface NodeReading {
  readonly requests: {
    method: string;
    target: string;
    version: string;
    pairs: string[];
    body: string;
    complete: boolean;
  }[];
  refusal: string | undefined;
}

export interface NodeReader {
  read(pieces: readonly Buffer[]): NodeReading;
  close(): void;
}

export function nodeReader(): NodeReader {
  const server = createServer({
    maxHeaderSize: 16 * 1024,
    requireHostHeader: false,
    headersTimeout: 0,
    requestTimeout: 0,
  });
  server.maxHeadersCount = 0;
  let messages: IncomingMessage[] = [];
  let refusal: string | undefined;
  const take = (req: IncomingMessage): void => void messages.push(req);
  server.on("request", take);
  server.on("checkContinue", take);
  server.on("checkExpectation", take);
  server.on("connect", take);
  server.on("clientError", (error: NodeJS.ErrnoException) => {
    refusal ??= error.code ?? error.message;
  });
  return {
    read(pieces) {
      messages = [];
      refusal = undefined;
      const socket = new Socket();
      server.emit("connection", socket);
      for (const piece of pieces) if (refusal === undefined && piece.length > 0) socket.emit("data", piece);
      const requests = messages.map((req) => ({
        method: req.method ?? "",
        target: req.url ?? "",
        version: req.httpVersion,
        pairs: req.rawHeaders.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text)),
        body: bodyOf(req),
        complete: req.complete,
      }));
      socket.destroy();
      return { requests, refusal };
    },
    close: () => void server.close(),
  };
}

/** Since Node 26 a read brings one piece. */
function bodyOf(req: IncomingMessage): string {
  let body = "";
  for (let piece = req.read() as Buffer | null; piece !== null; piece = req.read() as Buffer | null)
    body += piece.toString("latin1");
  return body;
}
