/**
 * Implements an upstream whose tools the configuration changes. With a lock file, a tool is listed or called only after
 * its definition was compared with the accepted one.
 */
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import type { WireTap } from "../../core/wire.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Span } from "../../json/syntax.ts";
import { buildListResult, listProblem, unknownName } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  failCall,
  forwardedCall,
  type Interceptor,
  intercept,
  LateCall,
  ownCall,
  type Question,
  runMessageSteps,
  serverFailure,
} from "../protocol/call.ts";
import {
  asClientRequest,
  asResult,
  asServerMessage,
  type ClientRequest,
  editedRequest,
  INVALID_PARAMS,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { itemName, type ListItem, type ListMembers, readListContent } from "../protocol/list-content.ts";
import { SERVER_INFO } from "../protocol/protocol-version.ts";
import { copyEnvelope } from "../server-side/envelope-2026.ts";
import {
  type ConnectionLoss,
  type OpenOutcome,
  type ServerAbout,
  type Upstream,
  type UpstreamListener,
  UpstreamWrapper,
} from "../server-side/upstream.ts";
import { guardArguments } from "./argument-guard.ts";
import { GuardQueue, type PendingChecks } from "./external-guard.ts";
import { checkedCall, passNotification, passQuestion } from "./message-checks.ts";
import type { Quarantine } from "./quarantine.ts";
import { guardedMessage, refusedAnswer } from "./result-guard.ts";
import { INSTRUCTIONS_ENTRY, instructionsDefinition } from "./tool-lock.ts";
import { filledRequest, type OfferedTool, type ToolSettings } from "./tool-settings.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");
const PART = peerInput("mcp-server/part");

/** Limits the pages that the gateway reads to compare the tools with the lock file. */
const MAX_LIST_PAGES = 50;
/** A server may change without a notification, so its list is compared again after this time. */
const COMPARED_MS = 60_000;
const TOOL_LIST: ListMembers = { member: "tools", key: "name" };

/**
 * With pinned instructions, only these members of the server description and the server information in `_meta` pass.
 */
const ABOUT_MEMBERS: ReadonlySet<string> = new Set([
  ...["protocolVersion", "supportedVersions", "capabilities", "serverInfo", "instructions"],
  ...["resultType", "ttlMs", "cacheScope"],
]);

export interface ToolUpstreamOptions {
  readonly settings: ToolSettings;
  readonly quarantine: Quarantine;
  readonly clock: Clock;
}

export class ToolUpstream extends UpstreamWrapper {
  readonly #env: ToolUpstreamOptions;
  /** The tools that match the lock file. Undefined while the server's list is not known. */
  #accepted: { readonly names: Set<string>; readonly atMs: number } | undefined = undefined;
  #shown: { readonly of: ServerAbout; readonly about: ServerAbout } | undefined = undefined;
  #changes = 0;
  readonly #checks: PendingChecks = { pending: 0 };
  /** Checks the messages that belong to no call. */
  readonly #queue: GuardQueue | undefined;

  constructor(env: ToolUpstreamOptions, user: UpstreamListener, make: (user: UpstreamListener) => Upstream) {
    super(user, make);
    this.#env = env;
    const { external } = env.settings.resultGuards;
    this.#queue = external && new GuardQueue(external, this.target, this.#checks);
  }

  override get about(): ServerAbout | undefined {
    return this.inner.about && this.#shownAbout(this.inner.about);
  }

  override get pendingCalls(): number {
    return super.pendingCalls + this.#checks.pending;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    this.inner.open((outcome) => done(this.#shownOutcome(outcome)), wire);
  }

  call(call: Call): CallHandle {
    const { resultGuards } = this.#env.settings;
    const { external } = resultGuards;
    if (external === undefined) return this.#start(checkedCall(call, resultGuards));
    const queue = new GuardQueue(external, this.target, this.#checks);
    const running = this.#start(checkedCall(call, resultGuards, queue));
    return {
      cancel: (reason) => {
        queue.close();
        running.cancel(reason);
      },
    };
  }

  readonly #shownResults: Interceptor = {
    result: ({ request }, message) =>
      request.method === "tools/list" ? this.#shownList(request, message) : this.#pinnedAnswer(message),
  };

  #start(call: Call): CallHandle {
    const { method, params } = call.request;
    if (method === "tools/list" || method === "server/discover")
      return intercept(call, [this.#shownResults], (own) => this.inner.call(own));
    if (method !== "tools/call") return this.inner.call(call);
    const shown = String(params.name);
    const tool = this.#env.settings.called(shown);
    if (!tool) return failCall(call, unknownName("tool", shown));
    if (this.#env.settings.lock === undefined) return this.#run(call, tool, shown);
    return this.#compared(call, (names) => {
      if (names.has(tool.name)) return this.#run(call, tool, shown);
      // The client receives the error for an unknown name, as for a denied tool. The request record contains the
      // reason.
      return failCall(call, {
        ...unknownName("tool", shown),
        error: "authorization_denied",
        detail: `tool "${tool.name}" of target "${this.target.name}" is not as the lock file says: see gwctl mcp lock --check`,
      });
    });
  }

  override park(): Promise<void> | undefined {
    const parked = super.park();
    if (parked !== undefined) this.#forget();
    return parked;
  }

  override close(): Promise<void> {
    this.#queue?.close();
    return super.close();
  }

  override notified(_inner: Upstream, message: ServerMessage): void {
    if (message.method === "notifications/tools/list_changed") this.#forget();
    passNotification(message, { guards: this.#env.settings.resultGuards, queue: this.#queue }, (passed) =>
      this.user.notified(this, passed),
    );
  }

  override asked(_inner: Upstream, question: Question): void {
    passQuestion(question, { guards: this.#env.settings.resultGuards, queue: this.#queue }, (passed) =>
      this.user.asked(this, passed),
    );
  }

  override lost(_inner: Upstream, loss: ConnectionLoss): void {
    this.#forget();
    this.user.lost(this, loss);
  }

  #forget(): void {
    this.#accepted = undefined;
    this.#changes += 1;
  }

  #shownOutcome(outcome: OpenOutcome): OpenOutcome {
    const { guard } = this.#env.settings.resultGuards;
    if (outcome.answer === undefined) return outcome;
    const pinned = this.#pinnedAnswer(outcome.answer);
    const answer =
      guard === undefined
        ? pinned
        : (finish(guardedMessage(pinned, guard, "initialize")) ?? refusedAnswer(guard.refusal));
    return outcome.ok ? { ok: true, answer, about: this.#shownAbout(outcome.about) } : { ok: false, answer };
  }

  #shownAbout(about: ServerAbout): ServerAbout {
    if (this.#shown?.of !== about) this.#shown = { of: about, about: this.#guardedAbout(this.#pinnedAbout(about)) };
    return this.#shown.about;
  }

  #pinnedAbout(about: ServerAbout): ServerAbout {
    return this.#passesInstructions(about.instructions) ? about : { ...about, instructions: undefined };
  }

  #guardedAbout(about: ServerAbout): ServerAbout {
    const { guard } = this.#env.settings.resultGuards;
    if (guard === undefined) return about;
    const { instructions, serverInfo } = about;
    const described = { instructions, serverInfo };
    const message = asServerMessage(resultText("0", JSON.stringify(described)));
    const guarded = finish(guardedMessage(message, guard, "initialize"));
    // After a rejection, the description contains neither instructions nor server information.
    if (guarded === undefined) return { ...about, serverInfo: undefined, instructions: undefined };
    const { result } = readJson(OWN_MESSAGE, guarded.text) as { result: typeof described };
    return { ...about, ...result, instructions: result.instructions };
  }

  /**
   * Removes instructions that do not match the accepted ones. Members that the protocol does not define are also
   * removed, because they could contain the same instructions.
   */
  #pinnedAnswer(message: ServerMessage): ServerMessage {
    if (message.kind !== "result" || this.#env.settings.lock?.pinsInstructions !== true) return message;
    const { result } = readJson(PART, message.text) as { result: Record<string, unknown> };
    const { _meta: meta } = result;
    const about = Object.fromEntries(Object.entries(result).filter(([key]) => ABOUT_MEMBERS.has(key)));
    if (typeof meta === "object" && meta !== null && Object.hasOwn(meta, SERVER_INFO))
      about._meta = { [SERVER_INFO]: (meta as Record<string, unknown>)[SERVER_INFO] };
    if (typeof about.instructions !== "string" || !this.#passesInstructions(about.instructions))
      delete about.instructions;
    return asResult(JSON.stringify(about));
  }

  #passesInstructions(instructions: string | undefined): boolean {
    const { lock } = this.#env.settings;
    if (instructions === undefined || lock?.pinsInstructions !== true) return true;
    const text = JSON.stringify(instructionsDefinition(instructions));
    return this.#env.quarantine.passes(INSTRUCTIONS_ENTRY, text, lock);
  }

  *#shownList(request: ClientRequest, message: ServerMessage): Steps<ServerMessage> {
    const { text } = message;
    const { items } = yield* readListContent(message, TOOL_LIST);
    if (!items || (yield* listProblem(request, message, this.target.name))) return message;
    const kept: string[] = [];
    yield* this.#eachPassing(text, items, (name, item) => {
      const listed = this.#env.settings.listed(text, item, name);
      if (listed !== undefined) kept.push(listed);
    });
    return yield* buildListResult(message, TOOL_LIST, kept);
  }

  /** The list must be valid. */
  *#eachPassing(text: string, items: readonly ListItem[], take: (name: string, item: Span) => void): Steps<void> {
    for (const item of items) {
      const name = itemName(text, item);
      if (this.#passes(name, slice(text, item))) take(name, item);
      yield;
    }
  }

  #passes(name: string, text: string): boolean {
    const { lock } = this.#env.settings;
    if (lock === undefined) return true;
    const passes = this.#env.quarantine.passes(name, text, lock);
    // A tool that now differs must not be called based on an earlier list.
    if (passes) this.#accepted?.names.add(name);
    else this.#accepted?.names.delete(name);
    return passes;
  }

  #compared(call: Call, then: (names: ReadonlySet<string>) => CallHandle): CallHandle {
    const nowMs = this.#env.clock.monotonicMs();
    if (this.#accepted && nowMs - this.#accepted.atMs < COMPARED_MS) return then(this.#accepted.names);
    const names = new Set<string>();
    const running = new LateCall();
    const accepted = { names, atMs: nowMs };
    const changes = this.#changes;
    const readPage = (cursor: string | undefined, page: number): void => {
      const params = { ...copyEnvelope(call.request), ...(cursor === undefined ? {} : { cursor }) };
      const request = asClientRequest("tools/list", JSON.stringify(params));
      const failed = (failure: Failure): void => call.failed(failure);
      running.current = this.inner.call(
        ownCall(request, {
          headers: call.headers,
          wire: call.wire,
          isLive: true,
          failed,
          answered: (message) =>
            runMessageSteps(
              message,
              () => this.#readPage(request, message, names),
              (read) => {
                if (running.isCancelled) return;
                if (read.failure) call.failed(read.failure);
                else if (read.next !== undefined && page < MAX_LIST_PAGES) readPage(read.next, page + 1);
                else {
                  if (changes === this.#changes) this.#accepted = accepted;
                  running.current = then(names);
                }
              },
              failed,
            ),
        }),
      );
    };
    readPage(undefined, 1);
    return running;
  }

  *#readPage(
    request: ClientRequest,
    message: ServerMessage,
    names: Set<string>,
  ): Steps<{ readonly failure?: Failure; readonly next?: string }> {
    const { text } = message;
    const problem = yield* listProblem(request, message, this.target.name);
    const { members, items } = yield* readListContent(message, TOOL_LIST);
    if (problem || !items)
      return { failure: problem ?? serverFailure(`target "${this.target.name}" does not list its tools`) };
    yield* this.#eachPassing(text, items, (name) => void names.add(name));
    const next = members.find(({ key }) => key === "nextCursor");
    const value = next && readJson(PART, slice(text, next));
    return typeof value === "string" ? { next: value } : {};
  }

  #run(call: Call, tool: OfferedTool, shown: string): CallHandle {
    const { argumentGuards } = this.#env.settings;
    if (argumentGuards === undefined) return this.#send(call, tool, shown);
    return guardArguments(call, argumentGuards, this.target.name, this.#checks, (checked) =>
      this.#send(checked, tool, shown),
    );
  }

  #send(call: Call, tool: OfferedTool, shown: string): CallHandle {
    const filled = filledRequest(call.request, tool.arguments, call.caller);
    if (filled.misspelled !== undefined)
      return failCall(call, {
        code: INVALID_PARAMS,
        status: 200,
        message: `Tool ${shown} cannot be called: ${filled.misspelled}`,
      });
    if (filled.problem !== undefined)
      return failCall(call, {
        code: INVALID_PARAMS,
        status: 200,
        message: `Tool ${shown} cannot be called: a value that your login must provide is missing`,
        error: "authorization_denied",
        detail: `tool "${tool.name}" of target "${this.target.name}": ${filled.problem}`,
      });
    const named = find(filled.request.text, 0, "params", "name");
    const request =
      tool.name === shown || !named
        ? filled.request
        : editedRequest(filled.request, [{ start: named.start, end: named.end, text: JSON.stringify(tool.name) }], {
            ...filled.request.params,
            name: tool.name,
          });
    const renamed = request === call.request ? call : forwardedCall(call, { request });
    if (tool.timeoutMs === undefined) return this.inner.call(renamed);
    return timedCall(renamed, { timeoutMs: tool.timeoutMs, shown, clock: this.#env.clock, upstream: this.inner });
  }
}

export interface TimedCall {
  readonly timeoutMs: number;
  readonly shown: string;
  readonly clock: Clock;
  readonly upstream: Upstream;
}

export function timedCall(call: Call, { timeoutMs, shown, clock, upstream }: TimedCall): CallHandle {
  const running = new LateCall();
  const timer = clock.after(timeoutMs, () => {
    running.cancel("timeout");
    const seconds = timeoutMs / 1000;
    call.failed(serverFailure(`tool "${shown}" did not respond within ${seconds} s`, "backend_timeout"));
  });
  running.current = upstream.call(
    forwardedCall(call, {
      answered: (message) => {
        timer.cancel();
        call.answered(message);
      },
      failed: (failure) => {
        timer.cancel();
        call.failed(failure);
      },
    }),
  );
  return {
    cancel: (reason) => {
      timer.cancel();
      running.cancel(reason);
    },
  };
}
