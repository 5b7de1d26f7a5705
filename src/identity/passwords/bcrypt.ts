/**
 * bcrypt, the hash of `htpasswd -B`: slow by design, and node has none. A library computes it in a thread of its own,
 * so that other requests do not wait for somebody's password. The thread starts with the first check and ends when
 * nobody has logged in for a while. Where no thread can be had the library computes it here, in slices.
 */
import { Worker } from "node:worker_threads";
import { compare } from "bcryptjs";
import type { Clock, Timer } from "../../lib/process/clock.ts";

const FORM = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
/** A second of computing; higher costs are a mistake in a file that is read per request. */
export const MAX_COST = 14;
const MIN_COST = 4;
const IDLE_MS = 30_000;

export interface BcryptQuestion {
  readonly id: number;
  readonly password: string;
  readonly hash: string;
}

export interface BcryptAnswer {
  readonly id: number;
  readonly matches: boolean;
}

/** Undefined if the text is no bcrypt hash; a string says what is wrong with one. */
export function bcryptProblem(text: string): string | "none" | undefined {
  const cost = Number(FORM.exec(text)?.[1] ?? Number.NaN);
  if (Number.isNaN(cost)) return undefined;
  return cost > MAX_COST || cost < MIN_COST
    ? `a bcrypt cost of ${cost} is not between ${MIN_COST} and ${MAX_COST}`
    : "none";
}

export interface Bcrypt {
  matches(password: string, hash: string): Promise<boolean>;
}

export function createBcrypt(clock: Clock, start: () => Worker = startWorker): Bcrypt {
  let worker: Worker | undefined;
  let idle: Timer | undefined;
  let nextId = 1;
  const waiting = new Map<number, { resolve(matches: boolean): void; reject(error: Error): void }>();

  function open(): Worker {
    idle?.cancel();
    if (worker !== undefined) return worker;
    const opened = start();
    opened.on("message", ({ id, matches }: BcryptAnswer) => {
      waiting.get(id)?.resolve(matches);
      waiting.delete(id);
      if (waiting.size > 0) return;
      // Only a check that somebody waits for keeps the process from ending.
      opened.unref();
      idle = clock.after(IDLE_MS, close);
    });
    opened.on("error", gone);
    opened.on("exit", () => gone(new Error("the thread has ended")));
    worker = opened;
    return opened;

    function gone(error: Error): void {
      if (worker !== opened) return;
      worker = undefined;
      const left = [...waiting.values()];
      waiting.clear();
      for (const one of left) one.reject(error);
    }
  }

  function close(): void {
    const closing = worker;
    worker = undefined;
    void closing?.terminate();
  }

  return {
    async matches(password, hash) {
      try {
        const opened = open();
        const id = nextId++;
        return await new Promise<boolean>((resolve, reject) => {
          waiting.set(id, { resolve, reject });
          opened.ref();
          opened.postMessage({ id, password, hash } satisfies BcryptQuestion);
        });
      } catch {
        return compare(password, hash);
      }
    },
  };
}

/** Beside this file after a compilation, beside the program in the bundle. */
function startWorker(): Worker {
  return new Worker(new URL("./bcrypt-worker.js", import.meta.url));
}
