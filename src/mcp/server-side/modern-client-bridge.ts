/**
 * A legacy server for clients of the modern era. The server was initialized once; each request loses its
 * envelope and each result gains what the modern era wants. Where the server asks the client something in the
 * middle of a call, the client's request is answered with `input_required`, the server's call is parked, and the
 * client's retry takes it up again.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { find, member, members, slice } from "../../json/json-text.ts";
import { namedIn } from "../protocol/access.ts";
import { type Call, type CallHandle, type Failure, type Question, runMessageSteps } from "../protocol/call.ts";
import {
  asClientRequest,
  asServerMessage,
  edited,
  INVALID_PARAMS,
  METHOD_NOT_FOUND,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  LEGACY_RESOURCE_NOT_FOUND,
  LEGACY_VERSIONS,
  LOG_LEVEL,
  MISSING_CAPABILITY,
  MODERN_VERSIONS,
  REMOVED_METHODS,
} from "../protocol/protocol-version.ts";
import { type TurnRelay, UNKNOWN_STATE } from "../replicas/turn-relay.ts";
import { asModernResult, modernResult, withoutEnvelope, withSubscription } from "./modern-envelope.ts";
import { acknowledgement, filterOf, honoured, isEmpty, type SubscriptionFilter, wants } from "./subscription-filter.ts";
import type { ServerAbout } from "./upstream.ts";

/** From the least to the most severe. */
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/** Calls that wait for their client to come back. */
const MAX_PARKED = 100;
const MAX_PARKED_MS = 10 * 60_000;

export interface LegacyServer {
  /** To replicas where a client may come back to its call. */
  readonly relay?: TurnRelay | undefined;
  call(call: Call): CallHandle;
  nowMs(): number;
  token(): string;
}

interface Parked {
  readonly turn: Turn;
  readonly elsewhere: { close(): void } | undefined;
}

interface Listener {
  readonly call: Call;
  readonly filter: SubscriptionFilter;
}

export class ModernClientBridge {
  readonly #side: LegacyServer;
  readonly #listeners = new Set<Listener>();
  /** How many subscriptions want each resource. */
  readonly #uris = new Map<string, number>();
  readonly #parked = new Map<string, Parked>();
  #about: ServerAbout;
  #logLevel: string | undefined = undefined;

  constructor(about: ServerAbout, side: LegacyServer) {
    this.#about = about;
    this.#side = side;
  }

  get parkedCalls(): number {
    return this.#parked.size;
  }

  get hasListeners(): boolean {
    return this.#listeners.size > 0;
  }

  call(call: Call): CallHandle {
    const { method, params } = call.request;
    if (REMOVED_METHODS.has(method)) {
      call.failed({ code: METHOD_NOT_FOUND, status: 404, message: `Method not found: ${method}` });
      return { cancel: () => undefined };
    }
    if (method === "server/discover") return this.#discover(call);
    if (method === "subscriptions/listen") return this.#listen(call);
    if (params.requestState !== undefined) return this.#takeUp(call);
    this.#wantLogs(call);
    const turn = new Turn(this.#withoutModern(call), {
      token: this.#side.token,
      park: (token, parked) => this.#park(token, parked),
    });
    turn.start((inner) => this.#side.call(inner));
    return turn;
  }

  /** A server was started anew: it knows nothing of what was set. */
  reopened(about: ServerAbout): void {
    this.#about = about;
    this.#logLevel = undefined;
    for (const uri of this.#uris.keys()) this.#tellServer("resources/subscribe", { uri });
  }

  /** The server said something that belongs to no call. */
  notified(message: ServerMessage): void {
    const uri = find(message.text, 0, "params", "uri");
    const name = uri && String(JSON.parse(slice(message.text, uri)));
    for (const { call, filter } of this.#listeners) {
      if (wants(filter, message.method, name))
        call.notified(asServerMessage(withSubscription(message.text, call.request.id)));
    }
  }

  /** The server asked something outside of any call: nobody is there to answer. */
  asked(question: Question): void {
    question.answer('"error":{"code":-32601,"message":"The client cannot be asked now"}');
  }

  /** Calls whose client did not come back in time end. */
  sweep(nowMs: number): void {
    for (const [token, { turn }] of this.#parked)
      if (nowMs - turn.parkedMs >= MAX_PARKED_MS) this.#unpark(token)?.give();
  }

  close(): void {
    for (const token of [...this.#parked.keys()]) this.#unpark(token)?.give();
    this.endSubscriptions();
  }

  /** The streams of subscriptions end with their result; clients subscribe anew. */
  endSubscriptions(): void {
    for (const listener of [...this.#listeners]) {
      this.#listeners.delete(listener);
      this.#endListening(listener);
    }
  }

  #discover(call: Call): CallHandle {
    const { capabilities, serverInfo, instructions } = this.#about;
    const result = {
      supportedVersions: [...MODERN_VERSIONS, ...[...LEGACY_VERSIONS].reverse()],
      capabilities,
      ...(instructions === undefined ? {} : { instructions }),
    };
    call.answered(
      asModernResult(asServerMessage(resultText("0", JSON.stringify(result))), "server/discover", serverInfo),
    );
    return { cancel: () => undefined };
  }

  /** The call as the server gets it, and its answer as the client does. */
  #withoutModern(call: Call): Call {
    const { method } = call.request;
    return {
      request: withoutEnvelope(call.request),
      headers: call.headers,
      wire: call.wire,
      notified: (message) => {
        if (message.method !== "notifications/message" || isLoudEnough(message, levelOf(call))) call.notified(message);
      },
      asked: (question) => call.asked(question),
      answered: (message) => {
        if (message.kind !== "result") call.answered(asModernError(message));
        else
          runMessageSteps(
            message,
            () => modernResult(message, method, this.#about.serverInfo),
            (result) => call.answered(result),
            (failure) => call.failed(failure),
          );
      },
      failed: (failure) => call.failed(failure),
    };
  }

  #takeUp(call: Call, isRelayed = false): CallHandle {
    const token = String(call.request.params.requestState);
    const turn = this.#parked.get(token)?.turn;
    if (turn === undefined && this.#side.relay && !isRelayed) return this.#side.relay.takeUp(token, call);
    const isSame = turn?.method === call.request.method && turn.name === namedIn(call.request)?.name;
    if (turn === undefined || !isSame) {
      call.failed(UNKNOWN_STATE);
      return { cancel: () => undefined };
    }
    this.#unpark(token);
    turn.takeUp(this.#withoutModern(call));
    return turn;
  }

  #park(token: string, turn: Turn): void {
    turn.parkedMs = this.#side.nowMs();
    if (this.#parked.size >= MAX_PARKED) {
      const [oldest] = this.#parked.keys();
      if (oldest !== undefined) this.#unpark(oldest)?.give();
    }
    const elsewhere = this.#side.relay?.wait(token, (call) => this.#takeUp(call, true));
    this.#parked.set(token, { turn, elsewhere });
  }

  #unpark(token: string): Turn | undefined {
    const parked = this.#parked.get(token);
    this.#parked.delete(token);
    parked?.elsewhere?.close();
    return parked?.turn;
  }

  #listen(call: Call): CallHandle {
    const asked = filterOf(call.request);
    if (asked === undefined) {
      call.failed({ code: INVALID_PARAMS, status: 200, message: 'Invalid params: "notifications" is required' });
      return { cancel: () => undefined };
    }
    const filter = honoured(asked, this.#about);
    const listener: Listener = { call, filter };
    call.notified(asServerMessage(withSubscription(acknowledgement(filter), call.request.id)));
    if (isEmpty(filter)) {
      this.#endListening(listener);
      return { cancel: () => undefined };
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

  #endListening({ call }: Listener): void {
    const text = withResultSubscription(resultText("0", "{}"), call.request.id);
    call.answered(asModernResult(asServerMessage(text), "subscriptions/listen", this.#about.serverInfo));
  }

  #count(uri: string, change: number): void {
    const before = this.#uris.get(uri) ?? 0;
    const after = before + change;
    if (after <= 0) this.#uris.delete(uri);
    else this.#uris.set(uri, after);
    if (before === 0 && after > 0) this.#tellServer("resources/subscribe", { uri });
    else if (before > 0 && after <= 0) this.#tellServer("resources/unsubscribe", { uri });
  }

  /** A legacy server logs for all calls or none: it is set to the finest level that a call wanted. */
  #wantLogs(call: Call): void {
    const level = levelOf(call);
    if (level === undefined || this.#about.capabilities.logging === undefined) return;
    if (this.#logLevel !== undefined && LEVELS.indexOf(this.#logLevel) <= LEVELS.indexOf(level)) return;
    this.#logLevel = level;
    this.#tellServer("logging/setLevel", { level });
  }

  #tellServer(method: string, params: object): void {
    this.#side.call({
      request: asClientRequest(method, JSON.stringify(params)),
      notified: () => undefined,
      asked: (question) => this.asked(question),
      answered: () => undefined,
      failed: () => undefined,
    });
  }
}

/** Undefined where the client wants no log messages. */
function levelOf(call: Call): string | undefined {
  const level = (call.request.params._meta as Record<string, unknown> | undefined)?.[LOG_LEVEL];
  return typeof level === "string" && LEVELS.includes(level) ? level : undefined;
}

function isLoudEnough(message: ServerMessage, level: string | undefined): boolean {
  const span = find(message.text, 0, "params", "level");
  return (
    level !== undefined &&
    span !== undefined &&
    LEVELS.indexOf(String(JSON.parse(slice(message.text, span)))) >= LEVELS.indexOf(level)
  );
}

/** What does not exist is now an invalid parameter. */
function asModernError(message: ServerMessage): ServerMessage {
  const code = find(message.text, 0, "error", "code");
  if (!code || Number(slice(message.text, code)) !== LEGACY_RESOURCE_NOT_FOUND) return message;
  return edited(message, [{ ...code, text: String(INVALID_PARAMS) }]);
}

function withResultSubscription(text: string, id: string): string {
  return text.replace('"result":{', `"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":${id}}`);
}

/** What the client must be able to do for each kind of question. */
const NEEDED = lookupTable<string>({
  "sampling/createMessage": "sampling",
  "elicitation/create": "elicitation",
  "roots/list": "roots",
});

export interface TurnEnv {
  token(): string;
  park(token: string, turn: Turn): void;
}

export class Turn implements CallHandle {
  readonly method: string;
  /** What the call is about; a retry must be about the same. */
  readonly name: string | undefined;
  parkedMs = 0;
  readonly #env: TurnEnv;
  #call: Call | undefined;
  #running: CallHandle | undefined = undefined;
  readonly #questions = new Map<string, Question>();
  #nextKey = 1;
  #isAsking = false;
  #outcome: ((call: Call) => void) | undefined = undefined;

  constructor(call: Call, env: TurnEnv) {
    this.method = call.request.method;
    this.name = namedIn(call.request)?.name;
    this.#call = call;
    this.#env = env;
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

  /** The client left while its request waited. */
  cancel(reason: string | undefined): void {
    this.#call = undefined;
    this.#refuseQuestions();
    this.#running?.cancel(reason);
  }

  /** The client does not come back. */
  give(): void {
    this.cancel("the client did not send the requested input");
  }

  /** The client's retry: its answers go to the server, and it waits for what comes next. */
  takeUp(call: Call): void {
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
    // What is still open is asked for again.
    else if (this.#questions.size > 0) this.#askSoon();
  }

  #asked(question: Question): void {
    const needed = NEEDED[question.method];
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

  /** Questions that come together are asked together. */
  #askSoon(): void {
    if (this.#isAsking) return;
    this.#isAsking = true;
    setImmediate(() => {
      this.#isAsking = false;
      const call = this.#call;
      if (call === undefined || this.#questions.size === 0) return;
      this.#call = undefined;
      const token = this.#env.token();
      this.#env.park(token, this);
      call.answered(this.#inputRequired(token));
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
