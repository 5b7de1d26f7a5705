/**
 * The files of a simulation, in memory: the configuration, a folder in which gateways keep their store, and the parts of
 * `/proc` that gateways read. A file keeps what was written when a process is killed, but a power failure may lose what
 * was not flushed.
 */
import { pidOf } from "./config.ts";
import type { Network } from "./network.ts";
import { OUTSIDE } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";
import { systemError } from "./sockets.ts";

/** Data planes have other disks than gateways. */
const SAFE_FOLDER = "/plane/";
const LISTENING = "0A";
/** The average time of an asynchronous operation. */
const DISK_MS = 2;

/** Files are only appended, so a flushed length says what a power failure keeps. */
interface File {
  bytes: Buffer;
  /** Starts with `bytes` and has space for more, after the first write. */
  storage?: Buffer;
  flushedBytes: number;
  /** Set by a failed flush. As on Linux, later flushes succeed although the bytes before them may be lost. */
  hasFailed?: boolean;
  mtimeMs: number;
  /** It is on a disk that does not fail. */
  readonly isSafe: boolean;
}

interface OpenFile {
  /** Undefined is a folder. */
  readonly file: File | undefined;
  readonly path: string;
  readonly process: string;
}

export class Files {
  readonly #network: Network;
  readonly #random: Seeded;
  #files = new Map<string, File>();
  /** The names as of the last flush of their folder. */
  #flushedNames = new Map<string, File>();
  /** The files that processes have open, by descriptor. */
  readonly #opened = new Map<number, OpenFile>();
  #nextFd = 1_000_000;
  #writes = 0;
  #powerFailures = 0;
  /** Writes fail while the disk is full. */
  isFull = false;
  /** As after an error of the disk, files can only be read. */
  isReadOnly = false;
  /** The process IDs that are in use. */
  isRunning: (pid: number) => boolean = () => false;

  constructor(network: Network, random: Seeded) {
    this.#network = network;
    this.#random = random;
  }

  /** Replaces a file, as an operator does. */
  write(path: string, text: string): void {
    this.#writes += 1;
    const bytes = Buffer.from(text);
    const file = { bytes, flushedBytes: bytes.length, mtimeMs: this.#writes, isSafe: path.startsWith(SAFE_FOLDER) };
    this.#files.set(path, file);
    this.#flushedNames.set(path, file);
  }

  /** Loses some of what was not flushed. */
  failPower(): void {
    this.#powerFailures += 1;
    const safe = [...this.#files].filter(([, { isSafe }]) => isSafe);
    if (this.#random.chance(0.5)) this.#files = new Map([...this.#flushedNames, ...safe]);
    for (const file of this.#files.values()) {
      if (file.isSafe) continue;
      const lostBytes = file.bytes.length - file.flushedBytes;
      file.bytes = file.bytes.subarray(0, file.flushedBytes + this.#random.int(lostBytes + 1));
    }
  }

  /** Changes one byte of a file in this folder, as a failing disk does. Returns its path. */
  damage(folder: string): string | undefined {
    const paths = [...this.#files].filter(([path, { bytes }]) => path.startsWith(`${folder}/`) && bytes.length > 0);
    const [path, file] = this.#random.pick(paths) ?? [];
    if (file === undefined) return undefined;
    file.bytes = Buffer.from(file.bytes);
    delete file.storage;
    const at = this.#random.int(file.bytes.length);
    file.bytes[at] = (file.bytes[at] as number) ^ (1 + this.#random.int(255));
    return path;
  }

  /** The paths of the files that a process and its threads have open. The end of a thread closes its files. */
  openedBy(pid: number): string[] {
    const { scheduler } = this.#network;
    for (const [fd, { process }] of this.#opened) if (scheduler.isEnded(process)) this.#opened.delete(fd);
    return [...this.#opened.values()].filter(({ process }) => pidOf(process) === pid).map(({ path }) => path);
  }

  /** Returns the descriptor. */
  #keepOpen(path: string, file: File | undefined, process: string): number {
    this.#nextFd += 1;
    this.#opened.set(this.#nextFd, { file, path, process });
    return this.#nextFd;
  }

  #find(path: string, call: string): File {
    const file = this.#files.get(path);
    if (file === undefined) throw systemError(call, "ENOENT");
    return file;
  }

  #open(path: string, flags: string): File {
    const known = this.#files.get(path);
    if (flags.endsWith("x") && known !== undefined) throw systemError("open", "EEXIST");
    if (flags === "r") return this.#find(path, "open");
    this.#failIfReadOnly(path, "open");
    if (flags === "a" && known !== undefined) return known;
    const file = { bytes: Buffer.alloc(0), flushedBytes: 0, mtimeMs: Date.now(), isSafe: path.startsWith(SAFE_FOLDER) };
    this.#files.set(path, file);
    return file;
  }

  #failIfReadOnly(path: string, call: string): void {
    if (this.isReadOnly && !path.startsWith(SAFE_FOLDER)) throw systemError(call, "EROFS");
  }

  /** A full disk takes some of the bytes first. */
  #append(file: File, bytes: Buffer): number {
    if (this.isReadOnly && !file.isSafe) throw systemError("write", "EROFS");
    const taken = this.isFull && !file.isSafe ? this.#random.int(Math.min(2, bytes.length)) : bytes.length;
    if (taken === 0 && bytes.length > 0) throw systemError("write", "ENOSPC");
    const before = file.bytes;
    const size = before.length + taken;
    if (file.storage === undefined || file.storage.length < size) {
      file.storage = Buffer.alloc(2 * size);
      before.copy(file.storage);
    }
    bytes.copy(file.storage, before.length, 0, taken);
    file.bytes = file.storage.subarray(0, size);
    return taken;
  }

  /** A full disk rejects some flushes, and a disk that became read-only all of them. */
  #failFlush(): void {
    if (this.isReadOnly) throw systemError("fsync", "EROFS");
    if (this.isFull && this.#random.chance(0.5)) throw systemError("fsync", "ENOSPC");
  }

  #rename(from: string, to: string): void {
    this.#failIfReadOnly(from, "rename");
    const file = this.#find(from, "rename");
    this.#files.delete(from);
    this.#files.set(to, file);
  }

  /** The files in a folder and its subfolders, by path. */
  contents(folder: string): Map<string, string> {
    const inside = [...this.#files].filter(([path]) => path.startsWith(`${folder}/`));
    return new Map(inside.map(([path, { bytes }]) => [path, bytes.toString()]));
  }

  #names(folder: string): string[] {
    const prefix = `${folder}/`;
    const paths = [...this.#files.keys()].filter((path) => path.startsWith(prefix));
    return [...new Set(paths.map((path) => path.slice(prefix.length).split("/", 1)[0] ?? ""))];
  }

  #remove(path: string): void {
    this.#failIfReadOnly(path, "rm");
    for (const name of this.#files.keys()) if (name === path || name.startsWith(`${path}/`)) this.#files.delete(name);
  }

  #flushNames(folder: string): void {
    const isInside = (path: string): boolean => path.startsWith(`${folder}/`);
    for (const path of [...this.#flushedNames.keys()].filter(isInside)) this.#flushedNames.delete(path);
    for (const [path, file] of this.#files) if (isInside(path)) this.#flushedNames.set(path, file);
  }

  /** The listening sockets of the running process and its threads. */
  #listeners() {
    return this.#network.openListeners((name) => pidOf(name) === process.pid);
  }

  #proc(path: string): string | undefined {
    const sockets = this.#listeners();
    const row = (fd: number, port: number): string => `0: 0:${port.toString(16)} 0:0 ${LISTENING} 0 0 0 0 0 ${fd}`;
    if (path === "/proc/self/net/tcp") return ["header", ...sockets.map(({ fd, port }) => row(fd, port))].join("\n");
    if (path === "/proc/self/net/tcp6") return "header";
    const pid = Number(/^\/proc\/(\d+)\/stat$/.exec(path)?.[1]);
    if (!this.isRunning(pid)) return undefined;
    return `${pid} (node) S ${"0 ".repeat(18)}${pid}`;
  }

  /** The replacements of the functions of `node:fs`. */
  functions() {
    const opened = (fd: number): File => {
      const file = this.#opened.get(fd)?.file;
      if (file === undefined) throw systemError("write", "EBADF");
      return file;
    };
    return {
      existsSync: (path: unknown) => this.#files.has(String(path)),
      readFileSync: (path: unknown, encoding?: unknown) => {
        const bytes = Buffer.from(this.#proc(String(path)) ?? this.#find(String(path), "open").bytes);
        return encoding === undefined ? bytes : bytes.toString();
      },
      readdirSync: (path: unknown) => {
        if (path !== "/proc/self/fd") return this.#names(String(path));
        return this.#listeners().map(({ fd }) => String(fd));
      },
      readlinkSync: (path: unknown) => `socket:[${String(path).replace("/proc/self/fd/", "")}]`,
      statSync: (path: unknown, options?: { throwIfNoEntry?: boolean }) => {
        if (options?.throwIfNoEntry === false && !this.#files.has(String(path))) return undefined;
        const { bytes, mtimeMs } = this.#find(String(path), "stat");
        const size = bytes.length;
        return { size, mtimeMs, ctimeMs: mtimeMs, ino: 1, isDirectory: () => false, isFile: () => true };
      },
      mkdirSync: () => undefined,
      openSync: (path: unknown, flags: unknown) =>
        this.#keepOpen(String(path), this.#open(String(path), String(flags)), this.#network.scheduler.process),
      writeSync: (fd: number, data: Buffer | string, offset = 0) =>
        this.#append(opened(fd), Buffer.from(data as string).subarray(offset)),
      writeFileSync: (path: unknown, text: string, { flag }: { flag: string }) =>
        void this.#append(this.#open(String(path), flag), Buffer.from(text)),
      realpathSync: (path: unknown) => String(path),
      fstatSync: () => ({ isFile: () => true }),
      fchmodSync: () => undefined,
      fsyncSync: (fd: number) => {
        const file = opened(fd);
        file.flushedBytes = file.bytes.length;
      },
      closeSync: (fd: number) => {
        if (!this.#opened.delete(fd)) this.#network.closeInherited(fd, (name) => pidOf(name) === process.pid);
      },
      renameSync: (from: unknown, to: unknown) => this.#rename(String(from), String(to)),
      rmSync: (path: unknown) => this.#remove(String(path)),
      utimesSync: (path: unknown, _atime: unknown, mtime: number) => {
        this.#failIfReadOnly(String(path), "utime");
        this.#find(String(path), "utime").mtimeMs = mtime * 1000;
      },
    };
  }

  /** The replacements of the functions of `node:fs/promises`. */
  promises() {
    return {
      open: (path: unknown, flags: unknown) => {
        const { process } = this.#network.scheduler;
        return this.#later(() => {
          const isFolder = flags === "r" && !this.#files.has(String(path));
          const file = isFolder ? undefined : this.#open(String(path), String(flags));
          const fd = this.#keepOpen(String(path), file, process);
          return file === undefined ? this.#folderHandle(String(path), fd) : this.#handle(file, fd);
        });
      },
      rename: (from: unknown, to: unknown) => this.#later(() => this.#rename(String(from), String(to))),
      rm: (path: unknown) => this.#later(() => this.#remove(String(path))),
    };
  }

  #handle(file: File, fd: number) {
    const flush = (): Promise<void> =>
      this.#later(() => {
        try {
          if (!file.isSafe) this.#failFlush();
        } catch (error) {
          file.hasFailed = true;
          throw error;
        }
        if (file.hasFailed !== true) file.flushedBytes = file.bytes.length;
      });
    return {
      stat: () => this.#later(() => ({ size: file.bytes.length })),
      write: (data: Buffer | string, from = 0, length = Buffer.byteLength(data)) => {
        const bytes = Buffer.from(data as string).subarray(from, from + length);
        return this.#later(() => ({ bytesWritten: this.#append(file, bytes) }));
      },
      datasync: flush,
      sync: flush,
      close: () => this.#later(() => void this.#opened.delete(fd)),
    };
  }

  #folderHandle(path: string, fd: number) {
    return {
      sync: () =>
        this.#later(() => {
          this.#failFlush();
          this.#flushNames(path);
        }),
      close: () => this.#later(() => void this.#opened.delete(fd)),
    };
  }

  /** The operation itself happens also if its process is killed before it gets the result. */
  #later<Value>(operation: () => Value): Promise<Value> {
    const { scheduler } = this.#network;
    const { process } = scheduler;
    const powerFailures = this.#powerFailures;
    return new Promise((resolve, reject) => {
      const run = (): void => {
        if (this.#powerFailures > powerFailures) return;
        try {
          const value = operation();
          if (scheduler.enter(process)) resolve(value);
        } catch (error) {
          if (scheduler.enter(process)) reject(error);
        }
      };
      scheduler.after(this.#random.exponential(DISK_MS), run, OUTSIDE);
    });
  }
}
