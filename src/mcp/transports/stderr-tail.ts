/**
 * What a child writes to stderr: always drained, logged up to a rate, and its last lines kept for error messages
 * and the admin interface. A child that floods it costs us nothing but the reading.
 */

import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { withoutSecrets } from "../../observe/trace/redact.ts";

const KEPT_LINES = 20;
const MAX_LINE_CHARS = 1024;
/** Enough for a stack trace at once; more in one second is a flood. */
const LOGGED_LINES_PER_SECOND = 50;
/** What Node and npm print below the reason of a crash: stack frames, closing brackets, versions, the way to a log file. */
const SAYS_NOTHING = /^(?:\s+at |[\s\])},]*$|Node\.js v\d|npm (?:error|ERR!) A complete log of this run)/;
const SAYS_WHY =
  /(?:Error|Exception)(?: \[\w+\])?:|\berror:|\bfatal\b|\bcannot\b|\bcould not\b|\bnot found\b|\bmissing\b|\brequired\b|\bdenied\b/i;

export interface StderrTailOptions {
  /** For log lines. */
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly secrets: readonly string[];
}

export class StderrTail {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #target: string;
  readonly #secrets: readonly string[];
  readonly #lines: string[] = [];
  #partial = "";
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #loggedInWindow = 0;
  #dropped = 0;

  constructor({ clock, logger, name, secrets }: StderrTailOptions) {
    this.#clock = clock;
    this.#logger = logger;
    this.#target = name;
    this.#secrets = secrets;
  }

  push(chunk: Buffer): void {
    const parts = (this.#partial + chunk.toString("utf8")).split("\n");
    this.#partial = (parts.pop() ?? "").slice(-MAX_LINE_CHARS);
    for (const part of parts) this.#line(part);
  }

  /** The last lines, oldest first, with what stands there without a line end. */
  lines(): string[] {
    return this.#partial.trim() === "" ? [...this.#lines] : [...this.#lines, this.#shown(this.#partial)];
  }

  /** The line that most likely says why the child ended: seldom the last one. */
  lastWords(): string | undefined {
    const lines = this.lines().filter((line) => !SAYS_NOTHING.test(line));
    return lines.findLast((line) => SAYS_WHY.test(line)) ?? lines.at(-1);
  }

  #shown(line: string): string {
    return withoutSecrets(line, this.#secrets);
  }

  #line(raw: string): void {
    const line = this.#shown(raw).trimEnd().slice(0, MAX_LINE_CHARS);
    if (line === "") return;
    this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#windowStartMs >= 1000) {
      if (this.#dropped > 0)
        this.#logger.warn("stderr lines were not logged", { target: this.#target, lines: this.#dropped });
      this.#windowStartMs = nowMs;
      this.#loggedInWindow = 0;
      this.#dropped = 0;
    }
    if (this.#loggedInWindow < LOGGED_LINES_PER_SECOND) {
      this.#loggedInWindow += 1;
      this.#logger.info(line, { target: this.#target, stream: "stderr" });
    } else this.#dropped += 1;
  }
}
