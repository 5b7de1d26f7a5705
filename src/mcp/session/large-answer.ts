/**
 * An answer that is so large that looking at it and encoding it would hold up everybody else: both are done in turns,
 * before the call is told of it.
 */
import { surface } from "../../base/contain.ts";
import { inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import { findInSteps, lineBytesInSteps, occursInSteps, slice } from "../../json/json-text.ts";
import { type Failure, type RoutedTarget, serverFailure } from "../protocol/call.ts";
import type { ClientRequest, ServerMessage } from "../protocol/json-rpc.ts";
import { type CallOutcome, outcomeOfAnswer, SUCCEEDED, toolError } from "./call-outcome.ts";

const IS_ERROR = /"isError"/;
const IS_ERROR_CHARS = 9;

export interface LargeAnswer {
  readonly outcome: CallOutcome;
  /** Under the client's id, without line breaks. */
  readonly bytes: readonly Buffer[];
}

export interface Waiting {
  readonly request: ClientRequest;
  readonly target: RoutedTarget | undefined;
  isOver(): boolean;
  ready(answer: LargeAnswer): void;
  failed(failure: Failure): void;
}

export function isLargeAnswer({ text }: ServerMessage): boolean {
  return text.length > SLICED_BYTES;
}

export function readyLargeAnswer(message: ServerMessage, call: Waiting): void {
  inTurns(readyInSteps(message, call), () => call.isOver())
    .then((answer) => call.ready(answer))
    .catch((error: unknown) => {
      surface(error);
      call.failed(serverFailure("the answer could not be handled"));
    });
}

function* readyInSteps(message: ServerMessage, { request, target }: Waiting): Steps<LargeAnswer> {
  const { text, idStart, idEnd } = message;
  const outcome = yield* outcomeInSteps(message, request, target);
  const bytes: Buffer[] = [];
  yield* lineBytesInSteps(text.slice(0, idStart), bytes);
  bytes.push(Buffer.from(request.id));
  yield* lineBytesInSteps(text.slice(idEnd), bytes);
  return { outcome, bytes };
}

function* outcomeInSteps(
  message: ServerMessage,
  request: ClientRequest,
  target: RoutedTarget | undefined,
): Steps<CallOutcome> {
  // Errors are small.
  if (message.kind !== "result") return outcomeOfAnswer(request, target, message);
  if (request.method !== "tools/call") return SUCCEEDED;
  // A search of the engine's own comes first: a large result is not walked through only to find that it is one.
  if (!(yield* occursInSteps(message.text, IS_ERROR, IS_ERROR_CHARS))) return SUCCEEDED;
  const flag = yield* findInSteps(message.text, 0, "result", "isError");
  if (flag === undefined || slice(message.text, flag) !== "true") return SUCCEEDED;
  return toolError("a large result says isError");
}
