/**
 * Writes a file that matters, so that its old content survives every failure: the new content is written beside it,
 * flushed and renamed over it, with the old file's mode and owner. A file that cannot be renamed over, because it is a
 * mount of its own or its folder is not writable, is rewritten in place, and only while a complete copy lies elsewhere.
 */
import { randomUUID } from "node:crypto";
import * as fileSystem from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

/** The system calls, so that tests can let each of them fail. */
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

/** The folder does not take a file, or not one of this owner; or the file is a mount of its own. */
const IN_PLACE = new Set(["EACCES", "EPERM", "EROFS", "EBUSY", "EXDEV"]);
const PRIVATE = 0o600;

/** A name that does not exist yet becomes a file; a link stays a link. Throws with the old content in place. */
export function replaceFile(file: string, content: string | Buffer, fs: FileSystem = fileSystem): void {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  const old = fs.statSync(file, { throwIfNoEntry: false });
  const target = old === undefined ? file : fs.realpathSync(file);
  if (old !== undefined && !old.isFile()) {
    // A pipe or a device holds nothing that could be lost.
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

/** Refuses a name that is taken (EEXIST); a file that could not be written whole is not left behind. */
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
  // Private until it has the mode of the file that it replaces: it may hold secrets.
  const fd = old === undefined ? fs.openSync(temporary, "wx") : fs.openSync(temporary, "wx", PRIVATE);
  try {
    writeAndClose(fs, fd, bytes, old);
    fs.renameSync(temporary, target);
  } catch (error) {
    quietly(() => fs.rmSync(temporary, { force: true }));
    throw error;
  }
  // The new name survives a power cut too, where the file system allows to ask for it.
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
 * What is longer than the old content is appended first: a full disk is noticed while the old content is untouched.
 * Then the blocks that the file already has are overwritten.
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

/** Beside the file where the folder allows it, else among the temporary files. */
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
    // Some file systems say only here that the disk is full.
    fs.closeSync(fd);
  } finally {
    if (!isClosed) quietly(() => fs.closeSync(fd));
  }
}

function writeAt(fs: FileSystem, fd: number, bytes: Buffer, position: number | null): void {
  for (let from = 0; from < bytes.length; )
    from += fs.writeSync(fd, bytes, from, bytes.length - from, position === null ? null : position + from);
}

/** Tidying up never hides the failure that it follows. */
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

/** `~` is the shell's word for the home directory; here it is the name of a folder that nobody has. */
export function homeHint(path: string, code: string | undefined): string {
  return code === "ENOENT" && /(?:^|[/\\])~[/\\]/.test(path)
    ? ": `~` is not expanded, use the full path or `${HOME}`"
    : "";
}
