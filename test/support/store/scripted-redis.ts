/**
 * A server that speaks the Redis protocol and responds as a test says, for responses that a real Redis gives only if
 * another program uses it too.
 */
import { createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";

export type RedisReply = string | number | null | readonly RedisReply[];

export interface ScriptedRedis {
  readonly url: string;
  /** Sends a message to every connection that has subscribed to the channel. */
  publish(channel: string, text: string): void;
}

/** `reply` gets the name of a command in lowercase, and its arguments. Commands of the connection itself get `OK`. */
export async function scriptedRedis(
  t: TestContext,
  reply: (name: string, args: readonly string[]) => RedisReply | undefined,
): Promise<ScriptedRedis> {
  const sockets = new Map<Socket, Set<string>>();
  const server = createServer((socket) => {
    const channels = new Set<string>();
    sockets.set(socket, channels);
    socket.on("close", () => sockets.delete(socket));
    let received = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      received = Buffer.concat([received, chunk]);
      for (let read = readCommand(received); read !== undefined; read = readCommand(received)) {
        received = received.subarray(read.end);
        const [name = "", ...args] = read.words;
        const lower = name.toLowerCase();
        if (lower === "subscribe")
          for (const channel of args) {
            channels.add(channel);
            socket.write(pushed(["subscribe", channel, channels.size]));
          }
        else socket.write(encoded(reply(lower, args) ?? "OK"));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets.keys()) socket.destroy();
    server.close();
  });
  const address = server.address() as { port: number };
  return {
    url: `redis://127.0.0.1:${address.port}`,
    publish(channel, text) {
      for (const [socket, channels] of sockets)
        if (channels.has(channel)) socket.write(pushed(["message", channel, text]));
    },
  };
}

/** Clients send arrays of strings. */
function readCommand(bytes: Buffer): { readonly words: readonly string[]; readonly end: number } | undefined {
  let at = 0;
  const number = (): number => {
    const end = bytes.indexOf("\r\n", at);
    if (end < 0) return Number.NaN;
    const found = Number(bytes.toString("latin1", at + 1, end));
    at = end + 2;
    return found;
  };
  const count = number();
  const words: string[] = [];
  for (let i = 0; i < count; i++) {
    const length = number();
    if (!(at + length + 2 <= bytes.length)) return undefined;
    words.push(bytes.toString("utf8", at, at + length));
    at += length + 2;
  }
  return words.length === count ? { words, end: at } : undefined;
}

/** Version 3 of the protocol, which clients use by default, distinguishes messages from replies. */
function pushed(reply: readonly RedisReply[]): string {
  return encoded(reply).replace("*", ">");
}

function encoded(reply: RedisReply): string {
  if (reply === null) return "$-1\r\n";
  if (typeof reply === "number") return `:${reply}\r\n`;
  if (typeof reply === "string") return `$${Buffer.byteLength(reply)}\r\n${reply}\r\n`;
  return `*${reply.length}\r\n${reply.map(encoded).join("")}`;
}
