/**
 * One HTTP request over a connection, with a body of text in both directions.
 */
import { type Peer, readBody, readHead, type Stop } from "./peer.ts";

export interface TextResponse {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** `received` gets the response's body as it arrives. */
export async function requestText(
  peer: Peer,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body = "",
  received: (bytes: Buffer) => void = () => undefined,
): Promise<TextResponse | Stop> {
  const lines = Object.entries({ host: "a.test", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === "" ? "" : `content-length: ${Buffer.byteLength(body)}\r\n`;
  const failed = await peer.write(`${method} ${path} HTTP/1.1\r\n${lines.join("")}${length}\r\n${body}`);
  if (failed !== undefined) return failed;
  const head = await readHead(peer);
  if (typeof head === "string") return head;
  const status = Number(head.first.split(" ")[1]);
  const chunks: Buffer[] = [];
  const keep = (bytes: Buffer): void => {
    chunks.push(bytes);
    received(bytes);
  };
  const stop = await readBody(peer, head, keep, status !== 204 && status !== 202);
  return stop ?? { status, headers: head.headers, body: Buffer.concat(chunks).toString() };
}

/** The data of the events of a complete event stream. */
export function eventData(text: string): string[] {
  return text
    .split(/\r?\n\r?\n/)
    .map((event) =>
      event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n"),
    )
    .filter((data) => data !== "");
}
