/**
 * Writes text to standard output or standard error at once, for messages before the log starts and after it ends. The
 * text is escaped, because it can quote a configuration or a server.
 */
import { writeSync } from "node:fs";
import { escapeOutput } from "./safe-text.ts";

export function print(fd: 1 | 2, text: string): void {
  const bytes = Buffer.from(escapeOutput(text));
  for (let from = 0; from < bytes.length; ) from += writeSync(fd, bytes, from);
}
