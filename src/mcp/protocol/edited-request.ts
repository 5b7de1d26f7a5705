/**
 * A client's request with parts of its text replaced: the place of its id moves along, everything else stays as the
 * client wrote it.
 */

import { splice } from "../../json/json-text.ts";
import type { Edit } from "../../json/syntax.ts";
import type { ClientRequest } from "./json-rpc.ts";

/** `params` says what the new text means, where the edits change them. */
export function editedRequest(request: ClientRequest, edits: readonly Edit[], params = request.params): ClientRequest {
  let shift = 0;
  for (const edit of edits) if (edit.end <= request.idStart) shift += edit.text.length - (edit.end - edit.start);
  return {
    ...request,
    text: splice(request.text, edits),
    idStart: request.idStart + shift,
    idEnd: request.idEnd + shift,
    params,
  };
}
