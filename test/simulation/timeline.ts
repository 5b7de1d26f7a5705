/**
 * The events of a run, up to the first broken invariant, and their digest.
 */
import crypto from "node:crypto";
import type { Scheduler } from "./scheduler.ts";

const HASHED_CHARS = 65_536;

export class Timeline {
  /** The first broken invariant, with the simulated time. */
  broken: string | undefined;
  readonly #scheduler: Scheduler;
  /** Receives every event. */
  readonly #show: ((line: string) => void) | undefined;
  readonly #digest = crypto.createHash("sha256");
  /** Events that are not in the digest yet. Many small updates would be slow. */
  #unhashed = "";

  constructor(scheduler: Scheduler, show: ((line: string) => void) | undefined) {
    this.#scheduler = scheduler;
    this.#show = show;
  }

  readonly note = (line: string): void => {
    if (this.broken !== undefined) return;
    const dated = `${this.#scheduler.nowMs.toFixed(3)} ${line}`;
    this.#unhashed += `${dated}\n`;
    if (this.#unhashed.length > HASHED_CHARS) this.#hash();
    this.#show?.(dated);
  };

  readonly breaks = (invariant: string, detail: string): void => {
    this.note(`BROKEN ${invariant}: ${detail}`);
    this.broken ??= `${invariant}: ${detail} (at ${(this.#scheduler.nowMs / 1000).toFixed(3)} s)`;
  };

  /** No event may follow. */
  end(): string {
    this.#hash();
    return this.#digest.digest("hex").slice(0, 16);
  }

  #hash(): void {
    this.#digest.update(this.#unhashed);
    this.#unhashed = "";
  }
}
