/**
 * Work on what servers answered: at once where it is small, in turns with others where it is large.
 */
import { surface } from "../../base/contain.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import { type Failure, serverFailure } from "./call.ts";
import type { ServerMessage } from "./json-rpc.ts";

/** `failed` is told if the work throws in a later turn; at once it throws to the caller. */
export function largeOrSmall<T>(
  { text }: Pick<ServerMessage, "text">,
  work: () => Steps<T>,
  done: (result: T) => void,
  failed: (failure: Failure) => void,
): void {
  whenWorked(text.length > SLICED_BYTES, work, done, failed);
}

export function whenWorked<T>(
  isLarge: boolean,
  work: () => Steps<T>,
  done: (result: T) => void,
  failed: (failure: Failure) => void,
): void {
  if (!isLarge) {
    done(finish(work()));
    return;
  }
  inTurns(work(), () => false)
    .then(done)
    .catch((error: unknown) => {
      surface(error);
      failed(serverFailure("the answer could not be handled"));
    });
}
