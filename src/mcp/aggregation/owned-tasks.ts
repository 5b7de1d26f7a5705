/**
 * Restricts tasks to the client that created them. A request for another client's task gets the error for an unknown
 * task and is not sent to the server. Authorization rules for a tool also apply to the tasks that its calls created.
 */

import { surface } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import { elementsInSteps, find, findInSteps, membersInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt, foldCase } from "../../json/syntax.ts";
import { StoreUnavailable } from "../../store/store.ts";
import { buildListResult, unknownMethod } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  mapResult,
  mapResultInSlices,
  NO_CALL,
  serverFailure,
} from "../protocol/call.ts";
import { type ClientRequest, editedRequest, INVALID_PARAMS, type ServerMessage } from "../protocol/json-rpc.ts";
import { isRequestMethod } from "../protocol/message-rules.ts";
import type { ClientTasks, OwnTasks } from "../replicas/task-records.ts";
import type { Upstream } from "../server-side/upstream.ts";

const PART = peerInput("mcp-server/part");

const PREFIX = "tasks/";
const LIST = "tasks/list";
const LISTEN = "subscriptions/listen";
const TASK_ID = foldCase("taskId");

type Run = (call: Call) => CallHandle;

export function isAboutTasks({ method, params }: ClientRequest): boolean {
  return method.startsWith(PREFIX) || (method === LISTEN && listenedTasks(params).length > 0);
}

/** The caller must check the request with `isAboutTasks` first. */
export function runAboutTasks(
  call: Call,
  access: McpAccess | undefined,
  client: ClientTasks,
  { target }: Upstream,
  run: Run,
): CallHandle {
  const { request } = call;
  if (!isRequestMethod(request.method)) {
    call.failed(unknownMethod(request.method));
    return NO_CALL;
  }
  const { taskId: asked } = request.params;
  if (request.method !== LIST && request.method !== LISTEN && typeof asked !== "string") {
    call.failed({ code: INVALID_PARAMS, status: 200, message: 'Invalid params: "taskId" must be a string' });
    return NO_CALL;
  }
  const running: { current: CallHandle; isCancelled: boolean } = { current: NO_CALL, isCancelled: false };
  client
    .of(target.name)
    .then((tasks) => {
      if (running.isCancelled) return;
      const problemOf = (taskId: string): Failure | undefined => taskProblem(taskId, tasks, access, target.name);
      const isOwn = (taskId: string): boolean => problemOf(taskId) === undefined;
      if (request.method === LISTEN) {
        running.current = run(ownSubscription(call, isOwn));
        return;
      }
      if (request.method === LIST) {
        running.current = run(ownList(call, isOwn));
        return;
      }
      const problem = problemOf(String(asked));
      if (problem === undefined) running.current = run(call);
      else call.failed(problem);
    })
    .catch((error: unknown) => {
      if (!running.isCancelled) call.failed(notDecided(error));
    });
  return {
    cancel: (reason) => {
      running.isCancelled = true;
      running.current.cancel(reason);
    },
  };
}

/** Records a created task for the client before the client receives the task id. */
export function recordedCall(call: Call, isJudged: boolean, client: ClientTasks, { target }: Upstream): Call {
  const { params } = call.request;
  return {
    ...mapResult(call, (message) => message),
    answered(message) {
      const taskId = createdTask(message);
      if (taskId === undefined) {
        call.answered(message);
        return;
      }
      const origin = { tool: String(params.name), ...(isJudged ? { arguments: params.arguments ?? {} } : {}) };
      client.add(target.name, taskId, origin).then(
        () => call.answered(message),
        (error: unknown) => call.failed(notDecided(error)),
      );
    },
  };
}

/**
 * Returns the id of the task in a result, either in `task` (2025-11-25) or next to `resultType` (the later extension).
 */
export function createdTask({ kind, text }: Pick<ServerMessage, "kind" | "text">): string | undefined {
  if (kind !== "result" || text.length > SLICED_BYTES || !text.includes('"taskId"')) return undefined;
  const { result } = readJson(PART, text) as {
    result?: { task?: { taskId?: unknown }; taskId?: unknown; resultType?: unknown };
  };
  const taskId = result?.resultType === "task" ? result.taskId : result?.task?.taskId;
  return typeof taskId === "string" ? taskId : undefined;
}

function taskProblem(
  taskId: string,
  tasks: OwnTasks,
  access: McpAccess | undefined,
  target: string,
): Failure | undefined {
  const unknown: Failure = { code: INVALID_PARAMS, status: 200, message: `Unknown task: ${taskId}` };
  const origin = tasks.origin(taskId);
  if (origin === undefined) return unknown;
  const call = origin.arguments === undefined ? undefined : { arguments: origin.arguments };
  if (access === undefined || access.allows("tool", origin.tool, target, call)) return undefined;
  return {
    ...unknown,
    error: "authorization_denied",
    detail: `no rule of mcpAuthorization allows tool "${origin.tool}" of target "${target}", which created the task`,
  };
}

function ownList(call: Call, isOwn: (taskId: string) => boolean): Call {
  return mapResultInSlices(call, function* (message): Steps<ServerMessage> {
    const { text } = message;
    const list = yield* findInSteps(text, 0, "result", "tasks");
    const kept: string[] = [];
    for (const item of list ? yield* elementsInSteps(text, list.start) : []) {
      const ids = (yield* membersInSteps(text, item.start)).filter(({ key }) => foldCase(key) === TASK_ID);
      const [id] = ids;
      const isPlain = ids.length === 1 && id?.key === "taskId" && text[id.start] === '"';
      if (isPlain && isOwn(readJson(PART, slice(text, id)) as string)) kept.push(slice(text, item));
      yield;
    }
    return yield* buildListResult(message, { member: "tasks", key: "taskId" }, kept);
  });
}

function ownSubscription(call: Call, isOwn: (taskId: string) => boolean): Call {
  const { request } = call;
  const span = find(request.text, 0, "params", "notifications", "taskIds");
  if (!span) return call;
  const taskIds = listenedTasks(request.params).filter(isOwn);
  const notifications = { ...(request.params.notifications as object), taskIds };
  const params = { ...request.params, notifications };
  return {
    ...mapResult(call, (message) => message),
    request: editedRequest(request, [editAt(span, JSON.stringify(taskIds))], params),
  };
}

/** The message parser has already validated the structure of `params`. */
function listenedTasks(params: ClientRequest["params"]): readonly string[] {
  const wanted = params.notifications as { readonly taskIds?: readonly string[] } | undefined;
  return wanted?.taskIds ?? [];
}

function notDecided(error: unknown): Failure {
  if (!(error instanceof StoreUnavailable)) surface(error);
  return serverFailure("the gateway cannot find out whose task it is now: try again later", "overloaded");
}
