/**
 * Notices that configuration files changed, by looking at them: file system events get lost on bind mounts and
 * with swapped symbolic links, a look every 300 ms does not. A change counts only when two reads a moment apart
 * agree, so that a half-written file is never loaded.
 */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import type { Clock } from "../lib/clock.ts";

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
  /** The content that is in use; a change back to it is no change. */
  onChange(): void;
  /** The files cannot be read; said once until they can again. */
  onUnreadable(error: Error): void;
}

export function watchFiles(options: WatchOptions): Watch {
  const { clock } = options;
  let lastLook = look(options.paths);
  let inUse = digestOf(options);
  let settling = false;
  let complained = false;

  const timer = clock.every(LOOK_EVERY_MS, () => {
    if (settling) return;
    const now = look(options.paths);
    if (now === lastLook) return;
    settling = true;
    compareTwice(now);
  });

  function compareTwice(before: string): void {
    const first = digestOf(options);
    clock.after(SETTLE_MS, () => {
      const second = digestOf(options);
      const now = look(options.paths);
      if (first !== second || now !== before) {
        compareTwice(now);
        return;
      }
      settling = false;
      lastLook = now;
      if (second === undefined) return;
      complained = false;
      if (second === inUse) return;
      inUse = second;
      options.onChange();
      // Loading may have read other files (keys, certificates): from now on they count too.
      lastLook = look(options.paths);
      inUse = digestOf(options);
    });
  }

  function digestOf({ read }: WatchOptions): string | undefined {
    try {
      return createHash("sha256").update(read()).digest("hex");
    } catch (error) {
      if (!complained) options.onUnreadable(error as Error);
      complained = true;
      return undefined;
    }
  }

  return { stop: () => timer.cancel() };
}

/** Cheap marks of every file: a swapped link has another inode, a rewritten file another time or size. */
function look(paths: () => readonly string[]): string {
  let marks = "";
  let list: readonly string[];
  try {
    list = paths();
  } catch {
    return "unreadable";
  }
  for (const path of list) {
    try {
      const { mtimeMs, ctimeMs, size, ino } = statSync(path);
      marks += `${path} ${mtimeMs} ${ctimeMs} ${size} ${ino}\n`;
    } catch {
      marks += `${path} absent\n`;
    }
  }
  return marks;
}
