/**
 * The files of a simulation: the configuration of its gateway, in memory. Gateways can read them, but not write.
 */
import { systemError } from "./sockets.ts";

export class Files {
  readonly #files = new Map<string, { readonly text: string; readonly mtimeMs: number }>();
  #writes = 0;

  write(path: string, text: string): void {
    this.#writes += 1;
    this.#files.set(path, { text, mtimeMs: this.#writes });
  }

  /** The replacements of the functions of `node:fs`. */
  functions() {
    const find = (path: unknown, call: string) => {
      const file = this.#files.get(String(path));
      if (file === undefined) throw systemError(call, "ENOENT");
      return file;
    };
    return {
      existsSync: (path: unknown) => this.#files.has(String(path)),
      readFileSync(path: unknown, encoding?: unknown) {
        const { text } = find(path, "open");
        return encoding === undefined ? Buffer.from(text) : text;
      },
      statSync(path: unknown) {
        const { text, mtimeMs } = find(path, "stat");
        const size = Buffer.byteLength(text);
        return { size, mtimeMs, ctimeMs: mtimeMs, ino: 1, isDirectory: () => false, isFile: () => true };
      },
    };
  }
}
