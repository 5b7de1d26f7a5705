/**
 * Validates responses to list requests, because merging, filters, and the name index rely on their structure.
 */
import type { Steps } from "../../base/sliced-work.ts";
import { find, slice } from "../../json/json-text.ts";
import type { Span } from "../../json/syntax.ts";
import { LISTS } from "./access.ts";
import { type Call, type Failure, mapResult, runMessageSteps, serverFailure } from "./call.ts";
import type { ClientRequest, ServerMessage } from "./json-rpc.ts";
import { type ListMembers, MAX_MEMBERS, readListContent } from "./list-content.ts";
import { listKeyProblem } from "./message-rules.ts";

export function* listProblem(
  request: ClientRequest,
  message: ServerMessage,
  target: string,
): Steps<Failure | undefined> {
  const list = LISTS[request.method];
  if (list === undefined || message.kind !== "result") return undefined;
  const what = yield* listContentProblem(message, list, find(request.text, 0, "params", "cursor"), request);
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
  message: ServerMessage,
  list: ListMembers,
  asked: Span | undefined,
  request: ClientRequest,
): Steps<string | undefined> {
  const { text } = message;
  const { members: top, items, itemProblem } = yield* readListContent(message, list);
  if (items === undefined) return `no list of ${list.member}`;
  if (top.length > MAX_MEMBERS) return `a result with more than ${MAX_MEMBERS} members`;
  const unclear = listKeyProblem(list.member, top);
  if (unclear !== undefined) return `a result that can be read in two ways: ${unclear}`;
  if (itemProblem !== undefined) return itemProblem;
  const cursor = top.find(({ key }) => key === "nextCursor");
  const next = cursor && slice(text, cursor);
  // Some servers send null instead of omitting the cursor.
  if (next === undefined || next === "null") return undefined;
  if (!next.startsWith('"')) return "a cursor that is not a string";
  return asked && slice(request.text, asked) === next ? "the same cursor again" : undefined;
}
