/**
 * Applies argument guards, which mask matches in the arguments of a tool call or reject the call before the server
 * receives it. Patterns run first, then external guards, then guards in shadow mode.
 */

import { surface } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { find, findInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Edit } from "../../json/syntax.ts";
import { checkAll } from "../../llm/guards/guard-services.ts";
import { GuardRejection } from "../../llm/guards/guarded-text.ts";
import {
  type Call,
  type CallHandle,
  forwardedCall,
  LateCall,
  type ShadowReporter,
  serverFailure,
} from "../protocol/call.ts";
import { type ClientRequest, editedRequest, INVALID_PARAMS } from "../protocol/json-rpc.ts";
import type { PendingChecks } from "./external-guard.ts";
import { checkedSpans, spanTexts, watchedSpans } from "./result-guard.ts";
import type { MessageGuards } from "./tool-settings.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");

/** `start` runs the call with the checked arguments. It is not called if the call is rejected or canceled. */
export function guardArguments(
  call: Call,
  guards: MessageGuards,
  target: string,
  checks: PendingChecks,
  start: (call: Call) => CallHandle,
): CallHandle {
  const running = new LateCall();
  checks.pending += 1;
  const checked = checkedRequest(call, guards, target).finally(() => {
    checks.pending -= 1;
  });
  checked
    .then(
      (request) => {
        if (running.isCancelled) return;
        const isSame = request === call.request;
        running.current = start(isSame ? call : forwardedCall(call, { request }));
      },
      (error: unknown) => {
        if (running.isCancelled) return;
        if (!(error instanceof GuardRejection)) {
          surface(error);
          call.failed(serverFailure("the arguments could not be checked"));
          return;
        }
        call.guarded?.("rejected", "argumentGuard");
        call.failed({
          code: INVALID_PARAMS,
          status: 200,
          message: error.message,
          error: "authorization_denied",
          detail: `an argument guard of target "${target}" rejected the call: ${error.message}`,
        });
      },
    )
    .catch(surface);
  return running;
}

/** Rejects with `GuardRejection` if a guard rejects the arguments. */
async function checkedRequest(call: Call, guards: MessageGuards, target: string): Promise<ClientRequest> {
  const isLarge = call.request.text.length > SLICED_BYTES;
  const run = <T>(steps: Steps<T>): T | Promise<T> => (isLarge ? runInSlices(steps, () => false) : finish(steps));
  const guarded = await run(guardedRequest(call.request, guards));
  const checked = await externallyChecked(guarded, guards, target, run);
  if (checked !== call.request) call.guarded?.("masked", "argumentGuard");
  if (guards.watch !== undefined && call.watched !== undefined)
    await run(watchedRequest(call.watched, checked, guards));
  return checked;
}

function* guardedRequest(request: ClientRequest, { guard }: MessageGuards): Steps<ClientRequest> {
  const span = guard && (yield* findInSteps(request.text, 0, "params", "arguments"));
  if (guard === undefined || span === undefined) return request;
  const edits = yield* checkedSpans(request.text, [span], guard);
  if (edits === undefined) throw rejection(guard.refusal);
  if (edits === "too large") throw rejection(`${guard.refusal} (the arguments are too large to be checked)`);
  return withEdits(request, edits);
}

async function externallyChecked(
  request: ClientRequest,
  { external }: MessageGuards,
  target: string,
  run: <T>(steps: Steps<T>) => T | Promise<T>,
): Promise<ClientRequest> {
  const span = external && (await run(findInSteps(request.text, 0, "params", "arguments")));
  if (external === undefined || span === undefined) return request;
  const found = await run(spanTexts(request.text, [span]));
  if (found === "nothing") return request;
  if (found === "too large") throw rejection(`${external.refusal} (the arguments are too large to be checked)`);
  const mcp = { target, method: request.method, tool: String(request.params.name) };
  const { texts } = found;
  const checked = await checkAll(external.guards, { direction: "request", model: undefined, texts, mcp });
  return checked === texts ? request : withEdits(request, found.edits(checked));
}

function* watchedRequest(report: ShadowReporter, request: ClientRequest, { watch }: MessageGuards): Steps<void> {
  const span = watch && (yield* findInSteps(request.text, 0, "params", "arguments"));
  if (watch === undefined || span === undefined) return;
  for (const { rule, action } of yield* watchedSpans(request.text, [span], watch))
    report(`an argument guard would ${action} what matches \`${rule}\``, `argumentGuard: ${rule}`);
}

function withEdits(request: ClientRequest, edits: readonly Edit[]): ClientRequest {
  if (edits.length === 0) return request;
  const changed = editedRequest(request, edits);
  const span = find(changed.text, 0, "params", "arguments");
  const args = span && readJson(OWN_MESSAGE, slice(changed.text, span));
  return { ...changed, params: { ...request.params, arguments: args } };
}

function rejection(message: string): GuardRejection {
  return new GuardRejection({ rejection: { status: 403, message } });
}
