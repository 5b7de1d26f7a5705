/**
 * Notices that configuration files changed, by looking at them: file system events get lost on bind mounts and
 * with swapped symbolic links, a look every 300 ms does not. A change counts only when two reads a moment apart
 * agree, so that a half-written file is never loaded.
 */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import type { Clock } from "../base/clock.ts";

const LOOK_EVERY_MS = 300;
const SETTLE_MS = 100;

export interface Watch {
  stop(): void;
}

export interface WatchOptions {
  readonly clock: Clock;
  /** Every path to look at now; a directory's files may come and go. */
  paths(): readonly string[];
  /** The whole content that matters, or throws when it cannot be read. */
  read(): string;
  /** What `read` gave when the running configuration was loaded: a change since then counts too. */
  readonly loaded: string;
  /** The content is another one. The next change waits until this one is dealt with. */
  onChange(): Promise<void>;
  /** The files cannot be read; said once until they can again. */
  onUnreadable(error: Error): void;
  /** They can be read again, and are what is in use. */
  onRestored(): void;
}

type Found = { readonly digest: string } | { readonly error: Error };

export function watchFiles(options: WatchOptions): Watch {
  const { clock } = options;
  let lastLook = "not looked yet";
  let inUse: string | undefined = hash(options.loaded);
  let settling = false;
  let complained = false;

  const timer = clock.every(LOOK_EVERY_MS, () => {
    if (settling) return;
    const now = look(pathsOf(options));
    if (now === lastLook) return;
    settling = true;
    compareTwice(now);
  });

  function compareTwice(before: string): void {
    const first = contentOf(options);
    clock.after(SETTLE_MS, () => {
      const second = contentOf(options);
      const paths = pathsOf(options);
      const now = look(paths);
      if (!isSame(first, second) || now !== before) {
        compareTwice(now);
        return;
      }
      lastLook = now;
      void settle(second, paths).finally(() => {
        settling = false;
      });
    });
  }

  async function settle(found: Found, paths: readonly string[] | undefined): Promise<void> {
    if ("error" in found) {
      if (!complained) options.onUnreadable(found.error);
      complained = true;
      return;
    }
    const wasUnreadable = complained;
    complained = false;
    if (found.digest === inUse) {
      if (wasUnreadable) options.onRestored();
      return;
    }
    const dealtWith = options.onChange();
    // Loading may have read other files (keys, certificates): from now on they count too.
    const after = contentOf(options);
    inUse = "digest" in after ? after.digest : undefined;
    // Written again while it was loaded: what is in use is then unknown, and the next look must not find it equal.
    const isUndisturbed = look(paths) === lastLook;
    if (!isUndisturbed) inUse = undefined;
    lastLook = isUndisturbed ? look(pathsOf(options)) : "disturbed";
    await dealtWith;
  }

  return { stop: () => timer.cancel() };
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

/** Undefined while a directory that should be listed cannot be. */
function pathsOf({ paths }: WatchOptions): readonly string[] | undefined {
  try {
    return paths();
  } catch {
    return undefined;
  }
}

/** Cheap marks of every file: a swapped link has another inode, a rewritten file another time or size. */
function look(paths: readonly string[] | undefined): string {
  if (paths === undefined) return "unreadable";
  let marks = "";
  for (const path of paths) {
    try {
      const { mtimeMs, ctimeMs, size, ino } = statSync(path);
      marks += `${path} ${mtimeMs} ${ctimeMs} ${size} ${ino}\n`;
    } catch {
      marks += `${path} absent\n`;
    }
  }
  return marks;
}
