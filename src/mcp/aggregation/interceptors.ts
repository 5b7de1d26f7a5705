/**
 * Lists the steps that every call of a session or client group passes between the client and the servers. Tasks belong
 * to the client that created them: a request for another client's task gets the error for an unknown task and is not
 * sent to the server. Rules for a tool also apply to the tasks that its calls created.
 */

import { surface } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import { elementsInSteps, find, findInSteps, membersInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt, foldCase } from "../../json/syntax.ts";
import { StoreUnavailable } from "../../store/store.ts";
import {
  accessProblem,
  addressedItem,
  buildListResult,
  filterList,
  LISTS,
  listProblem,
  unknownMethod,
} from "../protocol/access.ts";
import { type Failure, type InterceptedCall, type Interceptor, serverFailure } from "../protocol/call.ts";
import { guardrailInterceptor } from "../protocol/guarded-call.ts";
import { type ClientRequest, editedRequest, INVALID_PARAMS, type ServerMessage } from "../protocol/json-rpc.ts";
import { isRequestMethod } from "../protocol/message-rules.ts";
import type { ClientTasks, OwnTasks } from "../replicas/task-records.ts";
import { permittedSubscription } from "../server-side/subscription-filter.ts";

const PART = peerInput("mcp-server/part");

const PREFIX = "tasks/";
const LIST = "tasks/list";
const LISTEN = "subscriptions/listen";
const TASK_ID = foldCase("taskId");

/** What calls to one server pass. `shared` are the steps that calls to several servers pass too. */
export function singleTargetInterceptors(shared: readonly Interceptor[], tasks: ClientTasks): readonly Interceptor[] {
  return [...shared, taskInterceptor(tasks), accessInterceptor, listInterceptor];
}

/** `settings` come first, because their results wait until other processes have them. */
export function sharedInterceptors(settings: Interceptor | undefined): readonly Interceptor[] {
  return settings === undefined ? [guardrailInterceptor] : [settings, guardrailInterceptor];
}

export const accessInterceptor: Interceptor = {
  request(call) {
    const { access } = call;
    if (access === undefined) return undefined;
    const target = targetName(call);
    const problem = accessProblem(call.request, access, target, addressedItem(call.client.request)?.name);
    if (problem === undefined)
      call.request = permittedSubscription(call.request, (uri) => access.allows("resource", uri, target));
    return problem;
  },

  result(call, message) {
    const { access, request } = call;
    const list = access && LISTS[request.method];
    if (list === undefined) return undefined;
    const target = targetName(call);
    return filterList(message, request.method, (name) => access?.allows(list.kind, name, target) === true);
  },
};

/** Rejects lists that filters and clients could read in two ways. */
const listInterceptor: Interceptor = {
  result: (call, message) => (LISTS[call.request.method] === undefined ? undefined : checkedList(call, message)),
};

function* checkedList(call: InterceptedCall, message: ServerMessage): Steps<ServerMessage | Failure> {
  return (yield* listProblem(call.request, message, targetName(call))) ?? message;
}

function taskInterceptor(client: ClientTasks): Interceptor {
  return {
    request: (call) => (isAboutTasks(call.request) && !isShared(call) ? ownTaskProblem(call, client) : undefined),

    result(call, message) {
      if (call.ownsTask !== undefined) return ownList(message, call.ownsTask);
      const taskId = call.request.method === "tools/call" && !isShared(call) ? createdTask(message) : undefined;
      return taskId === undefined ? undefined : recorded(call, message, taskId, client);
    },
  };
}

/** A shared connection rejects tasks. */
function isShared({ targets: [target] }: InterceptedCall): boolean {
  return target?.config.shared === true;
}

function targetName({ targets: [target] }: InterceptedCall): string {
  return target?.name ?? "";
}

function isAboutTasks({ method, params }: ClientRequest): boolean {
  return method.startsWith(PREFIX) || (method === LISTEN && listenedTasks(params).length > 0);
}

/** Restricts a request to the client's own tasks. */
function ownTaskProblem(call: InterceptedCall, client: ClientTasks): Failure | Promise<Failure | undefined> {
  const { request, access } = call;
  const { method } = request;
  if (!isRequestMethod(method)) return unknownMethod(method);
  const { taskId: asked } = request.params;
  if (method !== LIST && method !== LISTEN && typeof asked !== "string")
    return { code: INVALID_PARAMS, status: 200, message: 'Invalid params: "taskId" must be a string' };
  const target = targetName(call);
  return client.of(target).then((tasks) => {
    const problemOf = (taskId: string): Failure | undefined => taskProblem(taskId, tasks, access, target);
    const isOwn = (taskId: string): boolean => problemOf(taskId) === undefined;
    if (method === LISTEN) call.request = ownSubscription(request, isOwn);
    else if (method === LIST) call.ownsTask = isOwn;
    else return problemOf(String(asked));
    return undefined;
  }, notDecided);
}

/** Records a created task for the client before the client receives the task id. */
function recorded(
  { request: { params }, access, targets }: InterceptedCall,
  message: ServerMessage,
  taskId: string,
  client: ClientTasks,
): Promise<ServerMessage | Failure> {
  const origin = { tool: String(params.name), ...(access === undefined ? {} : { arguments: params.arguments ?? {} }) };
  return client.add(targets[0]?.name ?? "", taskId, origin).then(() => message, notDecided);
}

/**
 * Returns the id of the task in a result, either in `task` (2025-11-25) or next to `resultType` (the later extension).
 */
function createdTask({ kind, text }: Pick<ServerMessage, "kind" | "text">): string | undefined {
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

function* ownList(message: ServerMessage, isOwn: (taskId: string) => boolean): Steps<ServerMessage> {
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
}

function ownSubscription(request: ClientRequest, isOwn: (taskId: string) => boolean): ClientRequest {
  const span = find(request.text, 0, "params", "notifications", "taskIds");
  if (!span) return request;
  const taskIds = listenedTasks(request.params).filter(isOwn);
  const notifications = { ...(request.params.notifications as object), taskIds };
  return editedRequest(request, [editAt(span, JSON.stringify(taskIds))], { ...request.params, notifications });
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
