/**
 * Connects a 2025 client to a 2026-07-28 server. A result with `input_required` becomes requests to
 * the client, and the call is repeated with the client's responses.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { find, findInSteps, members, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import {
  answerCall,
  type Call,
  type CallHandle,
  forwardedCall,
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
  type ClientNotification,
  type ClientRequest,
  requestText,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  is2025Version,
  LATEST_2025,
  LATEST_2026,
  LOG_LEVEL,
  PROTOCOL_VERSION,
  SERVER_INFO,
} from "../protocol/protocol-version.ts";
import { withEnvelope, withInput, withoutSubscription } from "./envelope-2026.ts";
import type { ParamHeaders } from "./param-headers.ts";
import { fullFilter, isEmpty } from "./subscription-filter.ts";
import type { ServerAbout } from "./upstream.ts";

const PART = peerInput("mcp-server/part");

/** Limits the input rounds per call to stop a server that never finishes. */
const MAX_ROUNDS = 16;
const MAX_INPUTS = 100;

export interface Server2026 {
  call(call: Call): CallHandle;
  /** The tool parameters that are also sent in HTTP headers, if the server uses streamable HTTP. */
  readonly params: ParamHeaders | undefined;
  notified(message: ServerMessage): void;
}

export class Client2025Bridge {
  readonly #server: Server2026;
  readonly #initialize: Readonly<Record<string, unknown>>;
  #about: ServerAbout | undefined = undefined;
  #logLevel: unknown = undefined;
  readonly #uris = new Set<string>();
  #listening: CallHandle | undefined = undefined;

  constructor(initialize: Readonly<Record<string, unknown>>, server: Server2026) {
    this.#initialize = initialize;
    this.#server = server;
  }

  envelope(): string {
    const { clientInfo, capabilities } = this.#initialize;
    const level = this.#logLevel === undefined ? "" : `,${JSON.stringify(LOG_LEVEL)}:${JSON.stringify(this.#logLevel)}`;
    const info = clientInfo === undefined ? "" : `${JSON.stringify(CLIENT_INFO)}:${JSON.stringify(clientInfo)},`;
    return `${info}${JSON.stringify(PROTOCOL_VERSION)}:"${LATEST_2026}",${JSON.stringify(CLIENT_CAPABILITIES)}:${JSON.stringify(capabilities ?? {})}${level}`;
  }

  opened(discovered: ServerMessage, about: ServerAbout): { answer: ServerMessage; about: ServerAbout } {
    const asked = String(this.#initialize.protocolVersion);
    const result = readJson(PART, discovered.text) as { result: { _meta?: Record<string, unknown> } };
    const translated: ServerAbout = {
      protocolVersion: is2025Version(asked) ? asked : LATEST_2025,
      // Clients may always set a log level, because the bridge stores it and sends it in the envelope.
      capabilities: { ...about.capabilities, logging: about.capabilities.logging ?? {} },
      serverInfo: result.result._meta?.[SERVER_INFO] ?? about.serverInfo ?? { name: "server", version: "0" },
      instructions: about.instructions,
    };
    this.#about = translated;
    this.#listening = undefined;
    const { instructions, ...shown } = translated;
    const text = JSON.stringify(instructions === undefined ? shown : { ...shown, instructions });
    return { answer: asServerMessage(resultText("0", text)), about: translated };
  }

  call(call: Call): CallHandle {
    const { method, params } = call.request;
    switch (method) {
      case "ping":
        return this.#done(call);
      case "logging/setLevel":
        this.#logLevel = params.level;
        return this.#done(call);
      case "resources/subscribe":
        this.#uris.add(String(params.uri));
        this.listen();
        return this.#done(call);
      case "resources/unsubscribe":
        this.#uris.delete(String(params.uri));
        this.listen();
        return this.#done(call);
      case "tools/list":
        return this.#server.params === undefined
          ? this.#rounds(call)
          : intercept(call, [this.#server.params.learning], (own) => this.#rounds(own));
      case "tools/call":
        return this.#callTool(call);
      default:
        return this.#rounds(call);
    }
  }

  notify(message: ClientNotification): void {
    // Other client notifications are not forwarded.
    if (message.method === "notifications/initialized") this.listen();
  }

  /** Replaces the subscription for all notifications of the server. */
  listen(): void {
    this.#listening?.cancel(undefined);
    this.#listening = undefined;
    const filter = fullFilter(this.#about, [...this.#uris]);
    if (isEmpty(filter)) return;
    const request = withEnvelope(
      asClientRequest("subscriptions/listen", JSON.stringify({ notifications: filter })),
      this.envelope(),
    );
    this.#listening = this.#server.call(
      ownCall(request, {
        notified: (message) => {
          if (message.method !== "notifications/subscriptions/acknowledged")
            this.#server.notified(withoutSubscription(message));
        },
      }),
    );
  }

  #rounds(call: Call): CallHandle {
    return new Rounds(call, this.#server, (request) => withEnvelope(request, this.envelope()));
  }

  /** Loads the tool list first if needed, because it defines which parameters the headers must contain. */
  #callTool(call: Call): CallHandle {
    const { params } = this.#server;
    if (params === undefined) return this.#rounds(call);
    const run = (): CallHandle =>
      this.#rounds(forwardedCall(call, { headers: params.added(call.request, call.headers) }));
    if (params.isLearned) return run();
    const running = new LateCall();
    const go = (): void => {
      running.current = run();
    };
    running.current = this.#server.call(
      ownCall(withEnvelope(asClientRequest("tools/list", "{}"), this.envelope()), {
        headers: call.headers,
        answered: (message) => {
          params.learn(message);
          go();
        },
        failed: go,
      }),
    );
    return running;
  }

  #done(call: Call): CallHandle {
    return answerCall(call, asResult("{}"));
  }
}

class Rounds implements CallHandle {
  readonly #call: Call;
  readonly #server: Server2026;
  readonly #prepare: (request: ClientRequest) => ClientRequest;
  /** The questions that the client has not answered yet. */
  readonly #open = new Set<Question>();
  #running: CallHandle | undefined = undefined;
  #rounds = 0;
  #isOver = false;

  constructor(call: Call, server: Server2026, prepare: (request: ClientRequest) => ClientRequest) {
    this.#call = call;
    this.#server = server;
    this.#prepare = prepare;
    this.#send(call.request);
  }

  cancel(reason: string | undefined): void {
    this.#end();
    this.#running?.cancel(reason);
  }

  #end(): void {
    this.#isOver = true;
    for (const question of this.#open) question.withdrawn?.(undefined);
    this.#open.clear();
  }

  #send(request: ClientRequest): void {
    this.#rounds += 1;
    this.#running = this.#server.call({
      request: this.#prepare(request),
      headers: this.#call.headers,
      wire: this.#call.wire,
      notified: (message) => this.#call.notified(message),
      asked: (question) => this.#call.asked(question),
      answered: (message) => this.#answered(message),
      failed: (failure) => this.#call.failed(failure),
    });
  }

  #answered(message: ServerMessage): void {
    if (this.#isOver) return;
    runMessageSteps(
      message,
      () => findInSteps(message.text, 0, "result", "resultType"),
      (type) => this.#answeredAs(type && slice(message.text, type), message),
      (failure) => this.#call.failed(failure),
    );
  }

  #answeredAs(type: string | undefined, message: ServerMessage): void {
    if (this.#isOver) return;
    if (type !== '"input_required"') {
      this.#call.answered(message);
      return;
    }
    if (this.#rounds >= MAX_ROUNDS) {
      this.#call.failed(serverFailure(`the server asked for input ${MAX_ROUNDS} times`));
      return;
    }
    this.#ask(message);
  }

  #ask(message: ServerMessage): void {
    const { text } = message;
    const state = find(text, 0, "result", "requestState");
    const requests = find(text, 0, "result", "inputRequests");
    const wanted = requests ? members(text, requests.start) : [];
    if (wanted.length > MAX_INPUTS || wanted.some((one) => !isQuestion(text, one.start))) {
      this.#isOver = true;
      this.#call.failed(serverFailure("the server asked for input in a form that cannot be read"));
      return;
    }
    const answers = new Map<string, string>();
    const go = (): void => {
      const responses =
        wanted.length === 0
          ? []
          : [`"inputResponses":{${[...answers].map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",")}}`];
      const added = [...responses, ...(state ? [`"requestState":${slice(text, state)}`] : [])].join(",");
      this.#send(added === "" ? this.#call.request : withInput(this.#call.request, added));
    };
    if (wanted.length === 0) go();
    for (const one of wanted) {
      this.#call.asked(
        this.#question(text, one.start, (outcome) => {
          if (this.#isOver) return;
          // 2026-07-28 cannot report a client error to the server, so the call fails.
          if (!outcome.startsWith('"result":')) this.#refused(outcome);
          else {
            answers.set(one.key, outcome.slice('"result":'.length));
            if (answers.size === wanted.length) go();
          }
        }),
      );
    }
  }

  #question(text: string, at: number, answer: (outcome: string) => void): Question {
    const method = readMethod(text, at) ?? "";
    const params = find(text, at, "params");
    const question: Question = {
      method,
      message: asServerMessage(requestText("0", method, params ? slice(text, params) : "{}")),
      withdrawn: undefined,
      answer: (outcome) => {
        this.#open.delete(question);
        answer(outcome);
      },
    };
    this.#open.add(question);
    return question;
  }

  #refused(outcome: string): void {
    this.#end();
    this.#call.answered(asServerMessage(`{"jsonrpc":"2.0","id":0,${outcome}}`));
  }
}

function readMethod(text: string, at: number): string | undefined {
  const span = find(text, at, "method");
  const value = span && readJson(PART, slice(text, span));
  return typeof value === "string" ? value : undefined;
}

function isQuestion(text: string, at: number): boolean {
  const params = find(text, at, "params");
  return readMethod(text, at) !== undefined && (params === undefined || text[params.start] === "{");
}
