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
  /** What `read` gave when the running configuration was loaded: a change since then counts too. */
  readonly loaded: string;
  /** The content is another one. The next change waits until this one is dealt with. */
  onChange(): Promise<void>;
  /** The files cannot be read; said once until they can again. */
  onUnreadable(error: Error): void;
  /** They can be read again, and are what is in use. */
  onRestored(): void;
}

export function watchFiles(options: WatchOptions): Watch {
  const { clock } = options;
  let lastLook = "not looked yet";
  let inUse: string | undefined = hash(options.loaded);
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
      lastLook = now;
      void settle(second).finally(() => {
        settling = false;
      });
    });
  }

  async function settle(found: string | undefined): Promise<void> {
    if (found === undefined) return;
    const wasUnreadable = complained;
    complained = false;
    if (found === inUse) {
      if (wasUnreadable) options.onRestored();
      return;
    }
    inUse = found;
    const dealtWith = options.onChange();
    // Loading may have read other files (keys, certificates): from now on they count too.
    lastLook = look(options.paths);
    inUse = digestOf(options);
    await dealtWith;
  }

  function digestOf({ read }: WatchOptions): string | undefined {
    try {
      return hash(read());
    } catch (error) {
      if (!complained) options.onUnreadable(error as Error);
      complained = true;
      return undefined;
    }
  }

  return { stop: () => timer.cancel() };
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
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
