/**
 * Connects 2026-07-28 clients to a 2025 server. A call is suspended while the server waits for input
 * from the client, which then retries the call.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { find, member, members, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt } from "../../json/syntax.ts";
import { addressedItem, unknownMethod } from "../protocol/access.ts";
import {
  answerCall,
  type Call,
  type CallHandle,
  type Failure,
  failCall,
  NO_CALL,
  ownCall,
  type Question,
  refuseQuestion,
  runMessageSteps,
} from "../protocol/call.ts";
import {
  asClientRequest,
  asResult,
  asServerMessage,
  edited,
  INVALID_PARAMS,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  LOG_LEVEL,
  MISSING_CAPABILITY,
  REMOVED_METHODS,
  RESOURCE_NOT_FOUND_2025,
  VERSIONS_2025,
  VERSIONS_2026,
} from "../protocol/protocol-version.ts";
import { type RetryRelay, UNKNOWN_STATE } from "../replicas/retry-relay.ts";
import { asResult2026, result2026, withoutEnvelope, withSubscription } from "./envelope-2026.ts";
import {
  acknowledgement,
  isEmpty,
  matchesFilter,
  requestedFilter,
  type SubscriptionFilter,
  supportedFilter,
} from "./subscription-filter.ts";
import type { ServerAbout } from "./upstream.ts";

const PART = peerInput("mcp-server/part");

/** The order is from least to most severe. */
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/** Limits the suspended calls that wait for a client's retry. At the limit, the oldest call expires. */
const MAX_SUSPENDED = 100;
const MAX_SUSPENDED_MS = 10 * 60_000;

export interface Server2025 {
  readonly relay?: RetryRelay | undefined;
  call(call: Call): CallHandle;
  nowMs(): number;
  token(): string;
}

interface Suspended {
  readonly call: SuspendableCall;
  readonly remote: { close(): void } | undefined;
}

interface Subscriber {
  readonly call: Call;
  readonly filter: SubscriptionFilter;
}

export class Client2026Bridge {
  readonly #server: Server2025;
  readonly #listeners = new Set<Subscriber>();
  readonly #uris = new Map<string, number>();
  readonly #suspended = new Map<string, Suspended>();
  #about: ServerAbout;
  #logLevel: string | undefined = undefined;

  constructor(about: ServerAbout, server: Server2025) {
    this.#about = about;
    this.#server = server;
  }

  get suspendedCalls(): number {
    return this.#suspended.size;
  }

  get hasListeners(): boolean {
    return this.#listeners.size > 0;
  }

  call(call: Call): CallHandle {
    const { method, params } = call.request;
    if (REMOVED_METHODS.has(method)) {
      return failCall(call, unknownMethod(method));
    }
    if (method === "server/discover") return this.#discover(call);
    if (method === "subscriptions/listen") return this.#listen(call);
    if (params.requestState !== undefined) return this.#resume(call);
    this.#raiseLogLevel(call);
    const suspendable = new SuspendableCall(this.#translated(call), (suspended) => this.#suspend(suspended));
    suspendable.start((inner) => this.#server.call(inner));
    return suspendable;
  }

  reopened(about: ServerAbout): void {
    this.#about = about;
    this.#logLevel = undefined;
    for (const uri of this.#uris.keys()) this.#sendInternal("resources/subscribe", { uri });
  }

  notified(message: ServerMessage): void {
    const uri = find(message.text, 0, "params", "uri");
    const name = uri && String(readJson(PART, slice(message.text, uri)));
    for (const { call, filter } of this.#listeners) {
      if (matchesFilter(filter, message.method, name))
        call.notified(asServerMessage(withSubscription(message.text, call.request.id)));
    }
  }

  /** Rejects a server request outside of a call, because the gateway cannot determine the client. */
  asked(question: Question): void {
    refuseQuestion(question);
  }

  sweep(nowMs: number): void {
    for (const [token, { call }] of this.#suspended)
      if (nowMs - call.suspendedMs >= MAX_SUSPENDED_MS) this.#takeSuspended(token)?.expire();
  }

  close(): void {
    for (const token of [...this.#suspended.keys()]) this.#takeSuspended(token)?.expire();
    this.endSubscriptions();
  }

  endSubscriptions(): void {
    for (const listener of [...this.#listeners]) {
      this.#listeners.delete(listener);
      this.#endListening(listener);
    }
  }

  #discover(call: Call): CallHandle {
    const { capabilities, serverInfo, instructions } = this.#about;
    const result = {
      supportedVersions: [...VERSIONS_2026, ...[...VERSIONS_2025].reverse()],
      capabilities,
      ...(instructions === undefined ? {} : { instructions }),
    };
    return answerCall(call, asResult2026(asResult(JSON.stringify(result)), "server/discover", serverInfo));
  }

  #translated(call: Call): Call {
    const { method } = call.request;
    return {
      request: withoutEnvelope(call.request),
      headers: call.headers,
      wire: call.wire,
      notified: (message) => {
        if (message.method !== "notifications/message" || meetsLevel(message, requestedLevel(call)))
          call.notified(message);
      },
      asked: (question) => call.asked(question),
      answered: (message) => {
        if (message.kind !== "result") call.answered(asError2026(message));
        else
          runMessageSteps(
            message,
            () => result2026(message, method, this.#about.serverInfo),
            (result) => call.answered(result),
            (failure) => call.failed(failure),
          );
      },
      failed: (failure) => call.failed(failure),
    };
  }

  /** Continues a suspended call with the client's retry, or forwards the retry to other replicas. */
  #resume(call: Call, isRelayed = false): CallHandle {
    const token = String(call.request.params.requestState);
    const suspended = this.#suspended.get(token)?.call;
    if (suspended === undefined && this.#server.relay && !isRelayed) return this.#server.relay.resume(token, call);
    const isSame = suspended?.method === call.request.method && suspended.name === addressedItem(call.request)?.name;
    if (suspended === undefined || !isSame) return failCall(call, UNKNOWN_STATE);
    this.#takeSuspended(token);
    suspended.resume(this.#translated(call));
    return suspended;
  }

  #suspend(call: SuspendableCall): string {
    const token = this.#server.token();
    call.suspendedMs = this.#server.nowMs();
    if (this.#suspended.size >= MAX_SUSPENDED) {
      const [oldest] = this.#suspended.keys();
      if (oldest !== undefined) this.#takeSuspended(oldest)?.expire();
    }
    const remote = this.#server.relay?.wait(token, (retry) => this.#resume(retry, true));
    this.#suspended.set(token, { call, remote });
    return token;
  }

  #takeSuspended(token: string): SuspendableCall | undefined {
    const suspended = this.#suspended.get(token);
    this.#suspended.delete(token);
    suspended?.remote?.close();
    return suspended?.call;
  }

  #listen(call: Call): CallHandle {
    const asked = requestedFilter(call.request);
    if (asked === undefined)
      return failCall(call, {
        code: INVALID_PARAMS,
        status: 200,
        message: 'Invalid params: "notifications" is required',
      });
    const filter = supportedFilter(asked, this.#about);
    const listener: Subscriber = { call, filter };
    call.notified(asServerMessage(withSubscription(acknowledgement(filter), call.request.id)));
    if (isEmpty(filter)) {
      this.#endListening(listener);
      return NO_CALL;
    }
    this.#listeners.add(listener);
    for (const uri of filter.resourceSubscriptions ?? []) this.#count(uri, 1);
    return {
      cancel: () => {
        if (!this.#listeners.delete(listener)) return;
        for (const uri of filter.resourceSubscriptions ?? []) this.#count(uri, -1);
      },
    };
  }

  #endListening({ call }: Subscriber): void {
    const text = withResultSubscription(resultText("0", "{}"), call.request.id);
    call.answered(asResult2026(asServerMessage(text), "subscriptions/listen", this.#about.serverInfo));
  }

  #count(uri: string, change: number): void {
    const before = this.#uris.get(uri) ?? 0;
    const after = before + change;
    if (after <= 0) this.#uris.delete(uri);
    else this.#uris.set(uri, after);
    if (before === 0 && after > 0) this.#sendInternal("resources/subscribe", { uri });
    else if (before > 0 && after <= 0) this.#sendInternal("resources/unsubscribe", { uri });
  }

  /**
   * A 2025 server has one log level for all calls, so the bridge sets the most verbose level that any call requested.
   */
  #raiseLogLevel(call: Call): void {
    const level = requestedLevel(call);
    if (level === undefined || this.#about.capabilities.logging === undefined) return;
    if (this.#logLevel !== undefined && LEVELS.indexOf(this.#logLevel) <= LEVELS.indexOf(level)) return;
    this.#logLevel = level;
    this.#sendInternal("logging/setLevel", { level });
  }

  #sendInternal(method: string, params: object): void {
    this.#server.call(ownCall(asClientRequest(method, JSON.stringify(params)), {}));
  }
}

function requestedLevel(call: Call): string | undefined {
  const level = (call.request.params._meta as Record<string, unknown> | undefined)?.[LOG_LEVEL];
  return typeof level === "string" && LEVELS.includes(level) ? level : undefined;
}

function meetsLevel(message: ServerMessage, level: string | undefined): boolean {
  const span = find(message.text, 0, "params", "level");
  return (
    level !== undefined &&
    span !== undefined &&
    LEVELS.indexOf(String(readJson(PART, slice(message.text, span)))) >= LEVELS.indexOf(level)
  );
}

/** 2026-07-28 reports a missing resource as an invalid parameter. */
function asError2026(message: ServerMessage): ServerMessage {
  const code = find(message.text, 0, "error", "code");
  if (!code || Number(slice(message.text, code)) !== RESOURCE_NOT_FOUND_2025) return message;
  return edited(message, [editAt(code, String(INVALID_PARAMS))]);
}

function withResultSubscription(text: string, id: string): string {
  return text.replace('"result":{', `"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":${id}}`);
}

const REQUIRED_CAPABILITY = lookupTable<string>({
  "sampling/createMessage": "sampling",
  "elicitation/create": "elicitation",
  "roots/list": "roots",
});

/**
 * Represents one call at a 2025 server that may span several requests of a 2026-07-28 client. The server's response may
 * arrive while the call is suspended.
 */
class SuspendableCall implements CallHandle {
  readonly method: string;
  /** A retry must address the same tool, prompt, or resource. */
  readonly name: string | undefined;
  suspendedMs = 0;
  readonly #suspend: (call: SuspendableCall) => string;
  #call: Call | undefined;
  #running: CallHandle | undefined = undefined;
  readonly #questions = new Map<string, Question>();
  #nextKey = 1;
  #isAsking = false;
  #outcome: ((call: Call) => void) | undefined = undefined;

  constructor(call: Call, suspend: (call: SuspendableCall) => string) {
    this.method = call.request.method;
    this.name = addressedItem(call.request)?.name;
    this.#call = call;
    this.#suspend = suspend;
  }

  start(send: (call: Call) => CallHandle): void {
    const call = this.#call as Call;
    this.#running = send({
      request: call.request,
      headers: call.headers,
      wire: call.wire,
      notified: (message) => this.#call?.notified(message),
      asked: (question) => this.#asked(question),
      answered: (message) => this.#end((waiting) => waiting.answered(message)),
      failed: (failure: Failure) => this.#end((waiting) => waiting.failed(failure)),
    });
  }

  cancel(reason: string | undefined): void {
    this.#call = undefined;
    this.#refuseQuestions();
    this.#running?.cancel(reason);
  }

  expire(): void {
    this.cancel("the client did not send the requested input");
  }

  resume(call: Call): void {
    this.#call = call;
    const responses = find(call.request.text, 0, "params", "inputResponses");
    const given = new Map(
      (responses ? members(call.request.text, responses.start) : []).map((one) => [
        one.key,
        slice(call.request.text, one),
      ]),
    );
    for (const [key, question] of [...this.#questions]) {
      const response = given.get(key);
      if (response === undefined) continue;
      this.#questions.delete(key);
      question.answer(`"result":${response}`, call.wire);
    }
    const outcome = this.#outcome;
    if (outcome) this.#end(outcome);
    // Server requests that the client did not respond to are sent to the client again.
    else if (this.#questions.size > 0) this.#askSoon();
  }

  #asked(question: Question): void {
    const needed = REQUIRED_CAPABILITY[question.method];
    if (needed === undefined || (this.#call !== undefined && !declares(this.#call, needed))) {
      question.answer(
        `"error":{"code":${needed === undefined ? -32601 : MISSING_CAPABILITY},"message":"The client cannot answer ${question.method}"}`,
      );
      return;
    }
    const key = `input_${this.#nextKey++}`;
    this.#questions.set(key, question);
    question.withdrawn = () => this.#questions.delete(key);
    if (this.#call !== undefined) this.#askSoon();
  }

  /** Waits one event-loop iteration, so that requests that arrive together are sent in one response. */
  #askSoon(): void {
    if (this.#isAsking) return;
    this.#isAsking = true;
    setImmediate(() => {
      this.#isAsking = false;
      const call = this.#call;
      if (call === undefined || this.#questions.size === 0) return;
      this.#call = undefined;
      call.answered(this.#inputRequired(this.#suspend(this)));
    });
  }

  #inputRequired(token: string): ServerMessage {
    const requests = [...this.#questions].map(([key, { method, message }]) => {
      const params = member(message.text, 0, "params");
      return `${JSON.stringify(key)}:{"method":${JSON.stringify(method)}${params ? `,"params":${slice(message.text, params)}` : ""}}`;
    });
    return asServerMessage(
      resultText(
        "0",
        `{"resultType":"input_required","inputRequests":{${requests.join(",")}},"requestState":${JSON.stringify(token)}}`,
      ),
    );
  }

  #end(outcome: (call: Call) => void): void {
    const call = this.#call;
    this.#refuseQuestions();
    if (call === undefined) this.#outcome = outcome;
    else {
      this.#call = undefined;
      outcome(call);
    }
  }

  #refuseQuestions(): void {
    for (const question of this.#questions.values())
      question.answer('"error":{"code":-32603,"message":"The client sent no response"}');
    this.#questions.clear();
  }
}

function declares(call: Call, capability: string): boolean {
  const meta = call.request.params._meta as Record<string, unknown> | undefined;
  const capabilities = meta?.[CLIENT_CAPABILITIES] as Record<string, unknown> | undefined;
  return capabilities?.[capability] !== undefined;
}
