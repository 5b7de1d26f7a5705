/**
 * Replaces files so that a failure does not lose the old content. The new content is written next to the file,
 * flushed, and renamed over it. If that is not permitted, the file is rewritten in place after a copy was made.
 */
import { randomUUID } from "node:crypto";
import * as fileSystem from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

export type FileSystem = Pick<
  typeof fileSystem,
  | "closeSync"
  | "fchmodSync"
  | "fchownSync"
  | "fstatSync"
  | "fsyncSync"
  | "ftruncateSync"
  | "openSync"
  | "readFileSync"
  | "realpathSync"
  | "renameSync"
  | "rmSync"
  | "statSync"
  | "writeSync"
>;

/** After these errors, the file is rewritten in place. */
const IN_PLACE = new Set(["EACCES", "EPERM", "EROFS", "EBUSY", "EXDEV"]);
const PRIVATE = 0o600;

/**
 * Creates the file if it does not exist. If the function throws, the old content of a regular file is in place, or in
 * a copy that the error names.
 */
export function replaceFile(file: string, content: string | Buffer, fs: FileSystem = fileSystem): void {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  const old = fs.statSync(file, { throwIfNoEntry: false });
  const target = old === undefined ? file : fs.realpathSync(file);
  if (old !== undefined && !old.isFile()) {
    writeAndClose(fs, fs.openSync(target, "w"), bytes);
    return;
  }
  try {
    replaceWhole(fs, target, bytes, old);
  } catch (error) {
    if (old === undefined || !IN_PLACE.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    rewriteInPlace(fs, target, bytes);
  }
}

/** Throws EEXIST if the file exists. Removes the file if it could not be written completely. */
export function createFile(file: string, content: string | Buffer, fs: FileSystem = fileSystem): void {
  const fd = fs.openSync(file, "wx");
  try {
    writeAndClose(fs, fd, typeof content === "string" ? Buffer.from(content) : content);
  } catch (error) {
    quietly(() => fs.rmSync(file, { force: true }));
    throw error;
  }
}

function replaceWhole(fs: FileSystem, target: string, bytes: Buffer, old: fileSystem.Stats | undefined): void {
  const temporary = join(dirname(target), `.${basename(target)}.${randomUUID()}.new`);
  // The file may contain secrets, so it is private until it has the mode of the file that it replaces.
  const fd = old === undefined ? fs.openSync(temporary, "wx") : fs.openSync(temporary, "wx", PRIVATE);
  try {
    writeAndClose(fs, fd, bytes, old);
    fs.renameSync(temporary, target);
  } catch (error) {
    quietly(() => fs.rmSync(temporary, { force: true }));
    throw error;
  }
  // Flushes the folder if the file system supports it, so that the new name survives a power failure.
  quietly(() => {
    const folder = fs.openSync(dirname(target), "r");
    try {
      fs.fsyncSync(folder);
    } finally {
      fs.closeSync(folder);
    }
  });
}

/**
 * Appends the bytes beyond the old length first, so that a full disk is detected while the old content is intact. Then
 * overwrites the existing blocks.
 */
function rewriteInPlace(fs: FileSystem, target: string, bytes: Buffer): void {
  const old = fs.readFileSync(target);
  const fd = fs.openSync(target, "r+");
  try {
    const copy = keepCopy(fs, target, old);
    try {
      writeAt(fs, fd, bytes.subarray(old.length), old.length);
      fs.fsyncSync(fd);
      writeAt(fs, fd, bytes.subarray(0, old.length), 0);
      fs.ftruncateSync(fd, bytes.length);
      fs.fsyncSync(fd);
    } catch (error) {
      restore(fs, fd, old, copy, error as Error);
      quietly(() => fs.rmSync(copy, { force: true }));
      throw error;
    }
    quietly(() => fs.rmSync(copy, { force: true }));
  } finally {
    quietly(() => fs.closeSync(fd));
  }
}

function keepCopy(fs: FileSystem, target: string, old: Buffer): string {
  let failure: unknown;
  for (const folder of [dirname(target), tmpdir()]) {
    const copy = join(folder, `.${basename(target)}.${randomUUID()}.old`);
    try {
      const fd = fs.openSync(copy, "wx", PRIVATE);
      try {
        writeAndClose(fs, fd, old);
        return copy;
      } catch (error) {
        quietly(() => fs.rmSync(copy, { force: true }));
        throw error;
      }
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

function restore(fs: FileSystem, fd: number, old: Buffer, copy: string, cause: Error): void {
  try {
    writeAt(fs, fd, old, 0);
    fs.ftruncateSync(fd, old.length);
    fs.fsyncSync(fd);
  } catch {
    throw new Error(`${cause.message}; the file may be damaged, its old content is in ${copy}`, { cause });
  }
}

function writeAndClose(fs: FileSystem, fd: number, bytes: Buffer, like?: fileSystem.Stats): void {
  let isClosed = false;
  try {
    writeAt(fs, fd, bytes, null);
    if (like !== undefined) {
      const own = fs.fstatSync(fd);
      if (own.uid !== like.uid || own.gid !== like.gid) fs.fchownSync(fd, like.uid, like.gid);
      fs.fchmodSync(fd, like.mode & 0o7777);
    }
    if (fs.fstatSync(fd).isFile()) fs.fsyncSync(fd);
    isClosed = true;
    // Some file systems report a full disk only on close.
    fs.closeSync(fd);
  } finally {
    if (!isClosed) quietly(() => fs.closeSync(fd));
  }
}

function writeAt(fs: FileSystem, fd: number, bytes: Buffer, position: number | null): void {
  for (let from = 0; from < bytes.length; )
    from += fs.writeSync(fd, bytes, from, bytes.length - from, position === null ? null : position + from);
}

/** A disk that becomes full takes the first part of a write and rejects the rest. */
export function writeFully(fd: number, text: string): void {
  writeAt(fileSystem, fd, Buffer.from(text), null);
}

function quietly(work: () => void): void {
  try {
    work();
  } catch {}
}

const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EACCES: "permission denied",
};

export function fileProblem(path: string, error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === undefined) return `cannot read ${path}: ${message}`;
  const meaning = SYSTEM_ERRORS[code];
  return `cannot read ${path}: ${code}${meaning === undefined ? "" : ` (${meaning})`}${homeHint(path, code)}`;
}

/** Returns a hint for a missing path with a `~` folder, which only the shell expands. */
export function homeHint(path: string, code: string | undefined): string {
  return code === "ENOENT" && /(?:^|[/\\])~[/\\]/.test(path)
    ? ": `~` is not expanded, use the full path or `${HOME}`"
    : "";
}
