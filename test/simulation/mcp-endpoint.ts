/**
 * The HTTP endpoint of a remote MCP server: reads requests and writes messages as JSON or as events.
 */
import type { BackendReport } from "./http-backend.ts";
import type { Side } from "./network.ts";
import { chunk, type Head, Peer, readBody, readHead } from "./peer.ts";
import { OUTSIDE } from "./scheduler.ts";

const PATIENCE_MS = 300_000;
const EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/** Resolves with false if the connection ends after the request. */
type Respond = (peer: Peer, head: Head, body: string) => Promise<boolean>;

export class McpEndpoint {
  readonly #report: BackendReport;
  readonly #respond: Respond;
  readonly #open = new Set<Side>();

  constructor(address: string, port: number, report: BackendReport, respond: Respond) {
    this.#report = report;
    this.#respond = respond;
    report.network.listen(address, port, { process: OUTSIDE, accept: (side) => void this.#serve(side) });
  }

  close(): void {
    for (const side of this.#open) side.close();
  }

  async #serve(side: Side): Promise<void> {
    const peer = new Peer(side, this.#report.scheduler, PATIENCE_MS);
    this.#open.add(side);
    for (;;) {
      const head = await readHead(peer);
      if (typeof head === "string") break;
      const chunks: Buffer[] = [];
      const stop = await readBody(peer, head, (bytes) => void chunks.push(bytes), false);
      if (stop !== undefined || !(await this.#respond(peer, head, Buffer.concat(chunks).toString()))) break;
    }
    this.#open.delete(side);
    side.close();
  }
}

/** Sends a complete response, with a message or without. These functions resolve with false if the connection failed. */
export async function sendResponse(peer: Peer, status: number, message?: object, headers = ""): Promise<boolean> {
  const body = message === undefined ? "" : JSON.stringify({ jsonrpc: "2.0", ...message });
  const type = body === "" ? "" : "content-type: application/json\r\n";
  const length = Buffer.byteLength(body);
  const failed = await peer.write(`HTTP/1.1 ${status} OK\r\n${type}${headers}content-length: ${length}\r\n\r\n${body}`);
  return failed === undefined;
}

export async function startEvents(peer: Peer): Promise<boolean> {
  return (await peer.write(EVENTS)) === undefined;
}

/** `id` contains the lines before the data. */
export async function sendEvent(peer: Peer, message: object, id = ""): Promise<boolean> {
  const data = JSON.stringify({ jsonrpc: "2.0", ...message });
  return (await peer.write(chunk(Buffer.from(`${id}data: ${data}\n\n`)))) === undefined;
}

export async function endEvents(peer: Peer): Promise<boolean> {
  return (await peer.write("0\r\n\r\n")) === undefined;
}
