/**
 * Defers the start of a backend run until an asynchronous step, such as a cache lookup, is complete.
 */
import type { BackendRun, ResponseReceiver } from "./backend.ts";

export class DeferredRun implements BackendRun {
  #run: BackendRun | undefined = undefined;
  #isAborted = false;
  readonly #onAbandoned: () => void;

  /** `onAbandoned` is called if the run is aborted before it starts. */
  constructor(call: ResponseReceiver, ready: Promise<() => BackendRun>, onAbandoned: () => void) {
    this.#onAbandoned = onAbandoned;
    ready
      .then((begin) => {
        if (!this.#isAborted) this.#run = begin();
      })
      .catch((error) => call.fail(error));
  }

  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    if (this.#run === undefined) this.#onAbandoned();
    else this.#run.abort();
  }

  resume(): void {
    this.#run?.resume();
  }
}
