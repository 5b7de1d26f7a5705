/**
 * Routes the messages of a session or client group to its targets. `SingleRouter` serves one target whose names have no
 * prefix. Tasks belong to the client that created them: a request for another client's task gets the error for an
 * unknown task and is not sent to the server. Rules for a tool also apply to the tasks that its calls created.
 */

import { surface } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { ResponseReceiver } from "../../core/backend.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import { HeaderList } from "../../http/headers.ts";
import { elementsInSteps, find, findInSteps, membersInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt, foldCase } from "../../json/syntax.ts";
import { StoreUnavailable } from "../../store/store.ts";
import { accessProblem, buildListResult, checkedList, filteredCall, unknownMethod } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  failureHeaders,
  mapResult,
  mapResultInSlices,
  NO_CALL,
  refuseQuestion,
  serverFailure,
} from "../protocol/call.ts";
import { runGuarded } from "../protocol/guarded-call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  editedRequest,
  errorText,
  INVALID_PARAMS,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import { isRequestMethod } from "../protocol/message-rules.ts";
import type { ClientTasks, OwnTasks } from "../replicas/task-records.ts";
import { permittedSubscription } from "../server-side/subscription-filter.ts";
import type { Target } from "../server-side/target.ts";
import type { OpenOutcome, Upstream } from "../server-side/upstream.ts";
import { errorToFailure } from "./merge-responses.ts";
import type { Names } from "./names.ts";

const PART = peerInput("mcp-server/part");

const PREFIX = "tasks/";
const LIST = "tasks/list";
const LISTEN = "subscriptions/listen";
const TASK_ID = foldCase("taskId");

type Run = (call: Call) => CallHandle;

function isAboutTasks({ method, params }: ClientRequest): boolean {
  return method.startsWith(PREFIX) || (method === LISTEN && listenedTasks(params).length > 0);
}

/** The caller must check the request with `isAboutTasks` first. */
function runAboutTasks(
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
function recordedCall(call: Call, isJudged: boolean, client: ClientTasks, { target }: Upstream): Call {
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

export type RouterOutcome =
  | { readonly ok: true; readonly answer: ServerMessage; readonly version: string }
  | {
      readonly ok: false;
      readonly reason: string;
      readonly failure: Failure;
      text(id: string): string;
      refuse(sink: ResponseReceiver, id: string): void;
    };

export interface Router {
  readonly upstreams: readonly Upstream[];
  readonly names: Names;
  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void;
  run(call: Call, access: McpAccess | undefined, guardrails: McpGuardrails | undefined): CallHandle;
  notify(message: ClientNotification, wire?: WireTap): void;
  /**
   * Returns a server's notification with the names that clients use, or undefined if the client must not receive it.
   */
  notificationText(upstream: Upstream, message: ServerMessage): string | undefined;
  change(change: TargetChange): readonly Upstream[];
}

export class SingleRouter implements Router {
  upstreams: readonly Upstream[];
  readonly names: Names;
  readonly #late: AddUpstream;
  readonly #tasks: ClientTasks;
  #upstream: Upstream;

  constructor(upstream: Upstream, names: Names, late: AddUpstream, tasks: ClientTasks) {
    this.upstreams = [upstream];
    this.names = names;
    this.#upstream = upstream;
    this.#late = late;
    this.#tasks = tasks;
  }

  open(done: (outcome: RouterOutcome) => void, wire?: WireTap): void {
    const upstream = this.#upstream;
    upstream.open((outcome) => done(routerOutcome(upstream, outcome)), wire);
  }

  run(call: Call, access: McpAccess | undefined, guardrails: McpGuardrails | undefined): CallHandle {
    const { target } = this.#upstream;
    call.routed?.(target);
    return runGuarded(call, guardrails, [target], (own) => this.#run(own, access));
  }

  #run(call: Call, access: McpAccess | undefined): CallHandle {
    const upstream = this.#upstream;
    // The shared connection rejects tasks, so none need to be recorded.
    if (upstream.target.config.shared === true) return this.#send(call, access, upstream);
    if (call.request.method === "tools/call")
      return this.#send(recordedCall(call, access !== undefined, this.#tasks, upstream), access, upstream);
    if (!isAboutTasks(call.request)) return this.#send(call, access, upstream);
    return runAboutTasks(call, access, this.#tasks, upstream, (own) => this.#send(own, access, upstream));
  }

  #send(call: Call, access: McpAccess | undefined, upstream: Upstream): CallHandle {
    if (access === undefined) return upstream.call(checkedList(call, upstream.target.name));
    const problem = accessProblem(call.request, access, upstream.target.name);
    if (problem) {
      call.failed(problem);
      return NO_CALL;
    }
    const { name } = upstream.target;
    const request = permittedSubscription(call.request, (uri) => access.allows("resource", uri, name));
    const permitted = request === call.request ? call : { ...mapResult(call, (message) => message), request };
    return upstream.call(checkedList(filteredCall(permitted, access, name), name));
  }

  notify(message: ClientNotification, wire?: WireTap): void {
    this.#upstream.notify(message, wire);
  }

  notificationText(_upstream: Upstream, message: ServerMessage): string {
    return message.text;
  }

  change({ targets }: TargetChange): readonly Upstream[] {
    const changed = changedUpstreams(this.upstreams, targets, false, this.#late);
    if (changed === undefined) return [];
    this.upstreams = changed.next;
    this.#upstream = changed.next[0] ?? this.#upstream;
    return changed.left;
  }
}

/** Opens the servers for `initialize`, which the processors of `mcpGuardrails` can reject or change the result of. */
export function openGuarded(
  router: Router,
  request: ClientRequest,
  guardrails: McpGuardrails | undefined,
  done: (outcome: RouterOutcome) => void,
  wire: WireTap | undefined,
): void {
  let version = "";
  const call: Call = {
    request,
    notified: () => undefined,
    asked: refuseQuestion,
    answered: (answer) => done({ ok: true, answer, version }),
    failed: (failure) => done(serverRefusal(failure)),
  };
  const targets = router.upstreams.map(({ target }) => target);
  runGuarded(call, guardrails, targets, (guarded) => {
    router.open((outcome) => {
      if (!outcome.ok) return done(outcome);
      version = outcome.version;
      guarded.answered(outcome.answer);
    }, wire);
    return NO_CALL;
  });
}

function routerOutcome(upstream: Upstream, outcome: OpenOutcome): RouterOutcome {
  if (outcome.ok) return { ok: true, answer: outcome.answer, version: outcome.about.protocolVersion };
  if (outcome.answer) {
    const { answer } = outcome;
    const failure = errorToFailure(answer);
    const reason = `target "${upstream.target.name}" refused to initialize: ${failure.message}`;
    return refusal(reason, failure, (id) => withId(answer, id));
  }
  return serverRefusal(serverFailure(`target "${upstream.target.name}" ${outcome.reason}`, outcome.error));
}

export function serverRefusal(failure: Failure): RouterOutcome {
  return refusal(failure.message, failure, (id) => errorText(id, failure.code, failure.message, failure.data));
}

function refusal(reason: string, failure: Failure, text: (id: string) => string): RouterOutcome {
  const { status } = failure;
  return {
    ok: false,
    reason,
    failure,
    text,
    refuse: (sink, id) => sendJson(sink, status, text(id), failureHeaders(failure)),
  };
}

export function sendJson(
  sink: ResponseReceiver,
  status: number,
  json: string | readonly Buffer[],
  extra: readonly string[] = [],
): void {
  const body = typeof json === "string" ? [Buffer.from(json)] : json;
  const length = body.reduce((sum, piece) => sum + piece.length, 0);
  sink.head(status, new HeaderList(["content-type", "application/json", "content-length", String(length), ...extra]));
  for (const piece of body) sink.data(piece);
  sink.end();
}

export interface TargetChange {
  /** Targets with an unchanged definition are the same objects as before the change. */
  readonly targets: readonly Target[];
  readonly names: Names;
}

/** Adds a target to an open session. `before` is the previous upstream with the same name. */
export type AddUpstream = (target: Target, before: Upstream | undefined) => Upstream;

interface ChangedUpstreams {
  readonly next: readonly Upstream[];
  /** The caller must close these upstreams when their calls have ended. */
  readonly left: readonly Upstream[];
}

/**
 * Keeps upstreams with an unchanged definition, replaces changed ones, and removes those without a target. Adds
 * upstreams for new targets if `takesNew` is true. Returns undefined if nothing changes.
 */
export function changedUpstreams(
  current: readonly Upstream[],
  targets: readonly Target[],
  takesNew: boolean,
  late: AddUpstream,
): ChangedUpstreams | undefined {
  const next: Upstream[] = [];
  for (const target of targets) {
    const before = current.find((upstream) => upstream.target.name === target.name);
    if (before?.target === target) next.push(before);
    else if (before || takesNew) next.push(late(target, before));
  }
  const left = current.filter((upstream) => !next.includes(upstream));
  const isSame = left.length === 0 && next.length === current.length && next.every((one, i) => one === current[i]);
  return isSame ? undefined : { next, left };
}
