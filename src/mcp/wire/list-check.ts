/**
 * Whether the answer to a list request is a list: every reader behind (merging, filters, the index of names) relies
 * on it, and a client would only say that it understood nothing. A page that names itself as the next would be read
 * for ever.
 */
import type { Steps } from "../../lib/process/turns.ts";
import { LISTS, withAnswer } from "./access.ts";
import { type Call, type Failure, serverFailure } from "./call.ts";
import type { ClientRequest, ServerMessage } from "./json-rpc.ts";
import { elementsInSteps, findInSteps, memberOf } from "./json-steps.ts";
import { find, type Span, slice } from "./json-text.ts";
import { largeOrSmall } from "./large-or-small.ts";

/** Undefined if nothing is wrong, or if the request is not for a list. */
export function* listProblem(
  request: ClientRequest,
  message: ServerMessage,
  target: string,
): Steps<Failure | undefined> {
  const list = LISTS[request.method];
  if (list === undefined || message.kind !== "result") return undefined;
  const what = yield* problemOf(message.text, list, find(request.text, 0, "params", "cursor"), request);
  if (what === undefined) return undefined;
  return serverFailure(`target "${target}" answered ${request.method} with ${what}`);
}

/** The call, failed where its answer is not the list that it asked for. */
export function checkedList(call: Call, target: string): Call {
  if (LISTS[call.request.method] === undefined) return call;
  return {
    ...withAnswer(call, (message) => message),
    answered: (message) =>
      largeOrSmall(
        message,
        () => listProblem(call.request, message, target),
        (problem) => (problem ? call.failed(problem) : call.answered(message)),
        (failure) => call.failed(failure),
      ),
  };
}

function* problemOf(
  text: string,
  list: { readonly member: string; readonly key: string },
  asked: Span | undefined,
  request: ClientRequest,
): Steps<string | undefined> {
  const items = yield* findInSteps(text, 0, "result", list.member);
  if (items === undefined || text[items.start] !== "[") return `no list of ${list.member}`;
  for (const item of yield* elementsInSteps(text, items.start)) {
    const name = yield* memberOf(text, item, list.key);
    if (name === undefined || text[name.start] !== '"') return `an item whose "${list.key}" is not a string`;
    yield;
  }
  const cursor = yield* findInSteps(text, 0, "result", "nextCursor");
  const next = cursor && slice(text, cursor);
  // Some write null where there is none.
  if (next === undefined || next === "null") return undefined;
  if (!next.startsWith('"')) return "a cursor that is not a string";
  return asked && slice(request.text, asked) === next ? "the same cursor again" : undefined;
}
