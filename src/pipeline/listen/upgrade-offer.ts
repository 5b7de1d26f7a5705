/**
 * What becomes of a request that asks for an upgrade. WebSocket is passed on; any other offer (clients make one of
 * h2c with their first request) is ignored, as RFC 9110 section 7.8 allows.
 */
import type { IncomingMessage } from "node:http";

const OFFER = new Set(["upgrade", "http2-settings"]);
const CLOSES = /(?:^|,)\s*close\s*(?:,|$)/i;

/**
 * The only upgrade that is passed on. It needs HTTP/1.1 (RFC 9110 section 7.8), has no body and so nothing to expect
 * (section 10.1.1), names one protocol, and does not ask for the connection's end. Everything else is answered as if
 * nothing were offered.
 */
export function isWebSocket({ method, httpVersion, headers }: IncomingMessage): boolean {
  const hasBody = headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
  return (
    method === "GET" &&
    httpVersion === "1.1" &&
    headers.upgrade?.toLowerCase() === "websocket" &&
    headers.expect === undefined &&
    !hasBody &&
    !CLOSES.test(headers.connection ?? "")
  );
}

/** The request head without its offer, to be read once more: Node reads no body after one that has it. */
export function headWithoutOffer(req: IncomingMessage): Buffer {
  let head = `${req.method} ${req.url} HTTP/${req.httpVersion}\r\n`;
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i] as string;
    const value = req.rawHeaders[i + 1] as string;
    const lower = name.toLowerCase();
    if (!OFFER.has(lower)) head += `${name}: ${lower === "connection" ? withoutOffer(value) : value}\r\n`;
  }
  return Buffer.from(`${head}\r\n`, "latin1");
}

function withoutOffer(connection: string): string {
  return connection
    .split(",")
    .filter((token) => !OFFER.has(token.trim().toLowerCase()))
    .join(",");
}
