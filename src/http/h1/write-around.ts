/**
 * A large chunk is not copied: it goes out in one system call with the text around it. Returns false when the client is slower.
 */
import type { Socket } from "node:net";

export function writeAround(
  socket: Socket,
  before: string,
  chunk: Buffer,
  after: string,
  written: ((error?: Error | null) => void) | undefined,
): boolean {
  socket.cork();
  if (before !== "") socket.write(before, "latin1");
  const hasRoom = after === "" ? socket.write(chunk, written) : socket.write(chunk);
  if (after !== "") socket.write(after, "latin1", written);
  socket.uncork();
  return hasRoom;
}
