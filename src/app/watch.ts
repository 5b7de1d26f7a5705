/**
 * Watches configuration files by polling, because file system events can get lost on bind mounts and with swapped
 * symbolic links. A change counts only after two equal reads, to avoid loading a partially written file.
 */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import type { Clock } from "../base/clock.ts";

const POLL_INTERVAL_MS = 300;
const SETTLE_MS = 100;

export interface Watch {
  stop(): void;
}

export interface WatchOptions {
  readonly clock: Clock;
  /** Returns the paths to watch now. New files can appear in a directory, and a load can name others. */
  paths(): readonly string[];
  /** Returns the `fileMark` that each file named by the configuration had when the last load read it. */
  marks(): ReadonlyMap<string, string>;
  read(): string;
  /** The watcher compares the files with this content to detect changes made since the load. */
  readonly loaded: string;
  /** The next change waits for the promise. */
  onChange(): Promise<void>;
  /** Called once when the files become unreadable. */
  onUnreadable(error: Error): void;
  onRestored(): void;
}

type Found = { readonly digest: string } | { readonly error: Error };

export function watchFiles(options: WatchOptions): Watch {
  const { clock } = options;
  let lastFingerprint = "not read yet";
  let loadedDigest: string | undefined = hash(options.loaded);
  let settling = false;
  let wasReported = false;

  const timer = clock.every(POLL_INTERVAL_MS, () => {
    if (settling) return;
    const now = fingerprint(pathsOf(options));
    if (now === lastFingerprint) return;
    settling = true;
    compareTwice(now);
  });

  function compareTwice(before: string): void {
    const first = contentOf(options);
    clock.after(SETTLE_MS, () => {
      const second = contentOf(options);
      const paths = pathsOf(options);
      const now = fingerprint(paths);
      if (!isSame(first, second) || now !== before) {
        compareTwice(now);
        return;
      }
      lastFingerprint = now;
      void settle(second, paths).finally(() => {
        settling = false;
      });
    });
  }

  async function settle(found: Found, paths: readonly string[] | undefined): Promise<void> {
    if ("error" in found) {
      if (!wasReported) options.onUnreadable(found.error);
      wasReported = true;
      return;
    }
    const wasUnreadable = wasReported;
    wasReported = false;
    if (found.digest === loadedDigest) {
      if (wasUnreadable) options.onRestored();
      return;
    }
    await options.onChange();
    // The load may have named other files (keys, certificates), so the watched paths are known only afterwards.
    const after = contentOf(options);
    // If a file changed during the load, the content in use is unknown, so the next poll must detect a change.
    const isUndisturbed = fingerprint(paths) === lastFingerprint && isAsRead(options.marks());
    loadedDigest = isUndisturbed && "digest" in after ? after.digest : undefined;
    lastFingerprint = isUndisturbed ? fingerprint(pathsOf(options)) : "disturbed";
  }

  return { stop: () => timer.cancel() };
}

/** Describes the version of a file without reading it. */
export function fileMark(path: string): string {
  try {
    const { mtimeMs, ctimeMs, size, ino } = statSync(path);
    return `${mtimeMs} ${ctimeMs} ${size} ${ino}`;
  } catch {
    return "absent";
  }
}

function isAsRead(marks: ReadonlyMap<string, string>): boolean {
  for (const [path, mark] of marks) if (fileMark(path) !== mark) return false;
  return true;
}

function contentOf({ read }: WatchOptions): Found {
  try {
    return { digest: hash(read()) };
  } catch (error) {
    return { error: error as Error };
  }
}

function isSame(one: Found, other: Found): boolean {
  if ("error" in one || "error" in other) return "error" in one && "error" in other;
  return one.digest === other.digest;
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function pathsOf({ paths }: WatchOptions): readonly string[] | undefined {
  try {
    return paths();
  } catch {
    return undefined;
  }
}

function fingerprint(paths: readonly string[] | undefined): string {
  if (paths === undefined) return "unreadable";
  return paths.map((path) => `${path} ${fileMark(path)}\n`).join("");
}
