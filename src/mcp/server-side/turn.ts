/**
 * One call at a legacy server that may take several requests of a modern client. While a request waits it is
 * attached; when the server asks something, the request is answered with `input_required` and the turn is parked
 * under a random token; the client's retry attaches to it again. The answer may come while nobody is attached.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import { find, member, members, slice } from "../../json/json-text.ts";
import { namedIn } from "../protocol/access.ts";
import type { Call, Failure, Question, Running } from "../protocol/call.ts";
import { CLIENT_CAPABILITIES, MISSING_CAPABILITY } from "../protocol/era.ts";
import { asServerMessage, resultText, type ServerMessage } from "../protocol/json-rpc.ts";

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

export class Turn implements Running {
  readonly method: string;
  /** What the call is about; a retry must be about the same. */
  readonly name: string | undefined;
  parkedMs = 0;
  readonly #env: TurnEnv;
  #call: Call | undefined;
  #running: Running | undefined = undefined;
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

  start(send: (call: Call) => Running): void {
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
