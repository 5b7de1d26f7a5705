/**
 * A run that begins when something outside has been asked: the cache, or a guard. Until then the client can leave, and then
 * nothing begins.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";

export class DeferredRun implements BackendRun {
  #run: BackendRun | undefined = undefined;
  #isAborted = false;
  readonly #abandoned: () => void;

  /** `asked` resolves with what begins the run. `abandoned`: the client left before it began. */
  constructor(call: BackendCall, asked: Promise<() => BackendRun>, abandoned: () => void) {
    this.#abandoned = abandoned;
    asked
      .then((begin) => {
        if (!this.#isAborted) this.#run = begin();
      })
      .catch((error) => call.fail(error));
  }

  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    if (this.#run === undefined) this.#abandoned();
    else this.#run.abort();
  }

  resume(): void {
    this.#run?.resume();
  }

  get spareTargets(): number {
    return this.#run?.spareTargets ?? 0;
  }

  tryNext(reason: string): boolean {
    return this.#run?.tryNext?.(reason) ?? false;
  }
}
