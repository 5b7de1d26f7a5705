/**
 * Validates responses to list requests, because merging, filters, and the name index rely on their structure.
 */
import type { Steps } from "../../base/sliced-work.ts";
import { elementsInSteps, find, findInSteps, membersInSteps, slice } from "../../json/json-text.ts";
import type { Span } from "../../json/syntax.ts";
import { LISTS } from "./access.ts";
import { type Call, type Failure, mapResult, runMessageSteps, serverFailure } from "./call.ts";
import type { ClientRequest, ServerMessage } from "./json-rpc.ts";
import { itemKeyProblem, listKeyProblem } from "./message-rules.ts";

export function* listProblem(
  request: ClientRequest,
  message: ServerMessage,
  target: string,
): Steps<Failure | undefined> {
  const list = LISTS[request.method];
  if (list === undefined || message.kind !== "result") return undefined;
  const what = yield* listContentProblem(message.text, list, find(request.text, 0, "params", "cursor"), request);
  if (what === undefined) return undefined;
  return serverFailure(`target "${target}" answered ${request.method} with ${what}`);
}

export function checkedList(call: Call, target: string): Call {
  if (LISTS[call.request.method] === undefined) return call;
  return {
    ...mapResult(call, (message) => message),
    answered: (message) =>
      runMessageSteps(
        message,
        () => listProblem(call.request, message, target),
        (problem) => (problem ? call.failed(problem) : call.answered(message)),
        (failure) => call.failed(failure),
      ),
  };
}

function* listContentProblem(
  text: string,
  list: { readonly member: string; readonly key: string },
  asked: Span | undefined,
  request: ClientRequest,
): Steps<string | undefined> {
  const result = yield* findInSteps(text, 0, "result");
  const top = result ? yield* membersInSteps(text, result.start) : [];
  const items = top.find(({ key }) => key === list.member);
  if (items === undefined || text[items.start] !== "[") return `no list of ${list.member}`;
  const unclear = listKeyProblem(
    list.member,
    top.map(({ key }) => key),
  );
  if (unclear !== undefined) return `a result that can be read in two ways: ${unclear}`;
  for (const item of yield* elementsInSteps(text, items.start)) {
    const own = yield* membersInSteps(text, item.start);
    const name = own.find(({ key }) => key === list.key);
    if (name === undefined || text[name.start] !== '"') return `an item whose "${list.key}" is not a string`;
    const problem = itemKeyProblem(own.map(({ key }) => key));
    if (problem !== undefined) return `an item that can be read in two ways: ${problem}`;
    yield;
  }
  const cursor = top.find(({ key }) => key === "nextCursor");
  const next = cursor && slice(text, cursor);
  // Some servers send null instead of omitting the cursor.
  if (next === undefined || next === "null") return undefined;
  if (!next.startsWith('"')) return "a cursor that is not a string";
  return asked && slice(request.text, asked) === next ? "the same cursor again" : undefined;
}
