/**
 * Whether the answer to a list request is a list: every reader behind (merging, filters, the index of names) relies
 * on it, and a client would only say that it understood nothing. A page that names itself as the next would be read
 * for ever.
 */
import { LISTS, withAnswer } from "./access.ts";
import { type Call, type Failure, serverFailure } from "./call.ts";
import type { ClientRequest, ServerMessage } from "./json-rpc.ts";
import { elements, find, member, slice } from "./json-text.ts";

/** Undefined if nothing is wrong, or if the request is not for a list. */
export function listProblem(request: ClientRequest, message: ServerMessage, target: string): Failure | undefined {
  const list = LISTS[request.method];
  if (list === undefined || message.kind !== "result") return undefined;
  const what = problemOf(message.text, list, find(request.text, 0, "params", "cursor"), request);
  if (what === undefined) return undefined;
  return serverFailure(`target "${target}" answered ${request.method} with ${what}`);
}

/** The call, failed where its answer is not the list that it asked for. */
export function checkedList(call: Call, target: string): Call {
  if (LISTS[call.request.method] === undefined) return call;
  return {
    ...withAnswer(call, (message) => message),
    answered: (message) => {
      const problem = listProblem(call.request, message, target);
      if (problem) call.failed(problem);
      else call.answered(message);
    },
  };
}

function problemOf(
  text: string,
  list: { readonly member: string; readonly key: string },
  asked: { start: number; end: number } | undefined,
  request: ClientRequest,
): string | undefined {
  const items = find(text, 0, "result", list.member);
  if (items === undefined || text[items.start] !== "[") return `no list of ${list.member}`;
  for (const item of elements(text, items.start)) {
    const name = member(text, item.start, list.key);
    if (name === undefined || text[name.start] !== '"') return `an item whose "${list.key}" is not a string`;
  }
  const cursor = find(text, 0, "result", "nextCursor");
  const next = cursor && slice(text, cursor);
  // Some write null where there is none.
  if (next === undefined || next === "null") return undefined;
  if (!next.startsWith('"')) return "a cursor that is not a string";
  return asked && slice(request.text, asked) === next ? "the same cursor again" : undefined;
}
