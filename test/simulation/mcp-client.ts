/**
 * An MCP client. With the protocol 2025-06-18, it opens a session, calls the tool, also several times at once and over
 * new connections, and ends the session or leaves it. It cancels some calls, and closes the stream of others and resumes
 * it. With 2026-07-28, it has no session, and closes the stream of a call to cancel it. Clients of both versions use
 * servers of both. It checks that every call gets exactly its own messages.
 */

import type { ClientReport } from "./http-client.ts";
import { eventData, requestText, type TextResponse } from "./http-request.ts";
import { type McpOrder, TOOL } from "./mcp-server.ts";
import { MODERN, modernMeta } from "./modern-mcp-server.ts";
import { contentOf, Peer, type Stop, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 400_000;
/** Shorter than the idle timeout of sessions, also if the wall clock jumps: stored sessions expire by it. */
const IDLE_MS = 240_000;
/** A server that the gateway runs as a child process. */
const STDIO = "/stdio";
const PATHS = ["/mcp", STDIO, "/modern"];
const HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };
/** A client gives the input that a server requests within this time. */
const MOST_THOUGHT_MS = 2_000;
/** A resumed stream has a response this long after the server had to send it. */
const RESUME_MS = 60_000;
const MOST_RESUMES = 20;
/** Larger than the windows between threads. */
const LARGEST_BYTES = 1_000_000;
/** A child process does not name the call for which it requires input, so a call may be retried for several others. */
const MOST_RETRIES = 10;
/** A session that its server has lost, or that could not be opened again, is 404. */
const DOCUMENTED = new Set([404, 408, 429, 502, 503, 504]);

interface Answer {
  readonly id?: string;
  readonly method?: string;
  readonly params?: { readonly progressToken?: string; readonly progress?: number; readonly message?: string };
  readonly result?: {
    readonly content?: readonly { readonly text?: string }[];
    readonly tools?: readonly { readonly name?: string }[];
    readonly supportedVersions?: readonly string[];
    /** Only with 2026-07-28. */
    readonly resultType?: string;
    readonly inputRequests?: Readonly<Record<string, Answer>>;
    readonly requestState?: string;
  };
  readonly error?: { readonly message?: string };
}

interface CallParams {
  readonly name?: string;
  readonly _meta?: object;
}

/** The client closes the connection within a response. */
class Cut extends Error {}

type Ended = Stop | "cut";

export class McpClient {
  readonly #name: string;
  readonly #path: string;
  readonly #isModern: boolean;
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;
  #session: string | undefined = undefined;
  #isLost = false;
  #calls = 0;

  constructor(index: number, random: Seeded, report: ClientReport) {
    this.#name = `m${index}`;
    this.#address = `10.2.${index >> 8}.${index & 255}`;
    this.#random = random;
    this.#path = random.pick(PATHS);
    this.#isModern = random.chance(0.3);
    this.#report = report;
  }

  async run(): Promise<void> {
    const { scheduler, pauseMs } = this.#report;
    while (!this.#report.isOver()) {
      await sleep(scheduler, this.#random.exponential(pauseMs));
      if (this.#report.isOver()) return;
      this.#isLost = false;
      await (this.#isModern ? this.#callSeveralTimes() : this.#useSession());
    }
  }

  async #useSession(): Promise<void> {
    const random = this.#random;
    this.#session = undefined;
    const opened = await this.#post({
      jsonrpc: "2.0",
      id: "init",
      method: "initialize",
      params: {
        protocolVersion: "2025-06-18",
        capabilities: { elicitation: {} },
        clientInfo: { name: this.#name, version: "1" },
      },
    });
    if (typeof opened === "string" || opened.status !== 200) return this.#failed("initialize", opened);
    this.#session = opened.headers.get("mcp-session-id");
    // The server could not be started.
    if (this.#session === undefined) return this.#failed("initialize", "end");
    await this.#post({ jsonrpc: "2.0", method: "notifications/initialized" });
    await this.#callSeveralTimes();
    if (random.chance(0.7)) await this.#end();
  }

  /** After that, no replica serves the session. */
  async #end(): Promise<void> {
    const ended = await this.#send("DELETE", "");
    if (typeof ended === "string" || ended.status >= 300 || this.#random.chance(0.7)) return;
    await sleep(this.#report.scheduler, this.#random.exponential(5_000));
    const response = await this.#post({ jsonrpc: "2.0", id: "late", method: "ping" });
    const isEnded = typeof response !== "string" && (response.status === 404 || isSessionEnd(response));
    if (this.#report.mustSucceed() && !isEnded)
      this.#report.broken("a session ends everywhere", `${this.#name}: ${JSON.stringify(response)}`);
  }

  async #callSeveralTimes(): Promise<void> {
    const random = this.#random;
    if (random.chance(0.3)) await this.#look(random.chance(0.5) && this.#isModern ? "server/discover" : "tools/list");
    for (let rounds = 1 + random.int(5); rounds > 0 && !this.#isLost; rounds--) {
      const calls = random.chance(0.3) ? 3 : 1;
      await Promise.all(Array.from({ length: calls }, () => this.#call(calls === 1)));
      await sleep(this.#report.scheduler, Math.min(IDLE_MS, random.exponential(random.chance(0.1) ? 120_000 : 2_000)));
    }
  }

  async #call(isAlone: boolean): Promise<void> {
    const random = this.#random;
    const isCalm = this.#report.isCalm;
    this.#calls += 1;
    const nonce = `${this.#name}-${this.#calls}`;
    // A child process may send a request to the client with the stream or result of another call.
    const ownsRequests = isAlone || this.#path !== STDIO;
    const order: McpOrder = {
      client: this.#name,
      nonce,
      input: contentOf(nonce, 0, random.chance(0.05) ? random.size(1, LARGEST_BYTES) : 0).toString(),
      bytes: random.size(1, random.chance(0.05) ? LARGEST_BYTES : 5_000),
      delayMs: Math.round(random.exponential(random.chance(0.1) ? 20_000 : 100)),
      progress: random.chance(0.4) ? 1 + random.int(5) : 0,
      asks: random.chance(0.1),
      cancelMs: random.chance(0.05) && ownsRequests ? Math.round(random.exponential(2_000)) : undefined,
      breaks: !isCalm && random.chance(0.03),
    };
    const sentMs = this.#report.scheduler.nowMs;
    this.#report.sent(nonce, "MCP");
    // A request of the server would be lost with the stream.
    const mayCut = !order.asks && ownsRequests && order.cancelMs === undefined;
    const isResumed = !this.#isModern && mayCut && order.progress > 1 && random.chance(0.3);
    const stream = new EventStream((message) => this.#respond(nonce, message));
    const cutAfter = isResumed ? 1 + random.int(order.progress - 1) : Number.POSITIVE_INFINITY;
    const received = (bytes: Buffer): void => {
      stream.add(bytes);
      if (stream.messages.length >= cutAfter && stream.lastId !== undefined) throw new Cut();
    };
    const params = { name: TOOL.name, arguments: order, _meta: { progressToken: nonce } };
    const cutMs = this.#isModern ? order.cancelMs : undefined;
    const calling = this.#request(nonce, "tools/call", params, received, cutMs);
    if (order.cancelMs !== undefined) return this.#cancel(order, calling, sentMs);
    const response = await calling;
    if (response === "cut") return this.#resume(order, stream, sentMs);
    if (typeof response === "string" || response.status !== 200) return this.#failed(nonce, response, sentMs);
    await this.#finish(order, params, messagesOf(response), sentMs);
  }

  /** Retries a call with the input that its server requires, through any gateway, until it has a result. */
  async #finish(order: McpOrder, params: CallParams, first: readonly Answer[], sentMs: number): Promise<void> {
    const { nonce } = order;
    let messages = first;
    let id = nonce;
    for (let retries = 1; retries <= MOST_RETRIES; retries++) {
      const { id: answeredId, result } = messages.at(-1) ?? {};
      if (!this.#isModern || result?.resultType !== "input_required") break;
      if (answeredId !== id) this.#report.broken("responses stay apart", `${id} got the response of ${answeredId}`);
      const requests = Object.entries(result.inputRequests ?? {});
      for (const [, request] of requests) this.#checkRequest(nonce, request.params?.message ?? "");
      await this.#think();
      const inputResponses = Object.fromEntries(requests.map(([key, request]) => [key, inputOf(request)]));
      const retry = { ...params, inputResponses, requestState: result.requestState };
      id = `${nonce}/${retries}`;
      const response = await this.#request(id, "tools/call", retry);
      if (typeof response === "string" || response.status !== 200) return this.#failed(id, response, sentMs);
      messages = [...messages.slice(0, -1), ...messagesOf(response)];
    }
    this.#check(order, messages, sentMs, id);
  }

  /** Requests a description of the server. */
  async #look(method: "server/discover" | "tools/list"): Promise<void> {
    const sentMs = this.#report.scheduler.nowMs;
    const id = `${this.#name}-look`;
    const response = await this.#request(id, method, {});
    if (typeof response === "string" || response.status !== 200) return this.#failed(method, response, sentMs);
    const answer = messagesOf(response).find(({ method: notified }) => notified === undefined);
    if (answer?.result === undefined) return this.#failed(method, "end", sentMs);
    const { tools = [], supportedVersions = [], resultType } = answer.result;
    const isRight = method === "tools/list" ? tools[0]?.name === TOOL.name : supportedVersions.includes(MODERN);
    if (answer.id !== id || !isRight || (this.#isModern && resultType !== "complete"))
      this.#report.broken("responses stay apart", `${this.#name}: ${response.body}`);
  }

  /** A canceled call ends without a response. */
  async #cancel(
    { nonce, cancelMs = 0 }: McpOrder,
    calling: Promise<TextResponse | Ended>,
    sentMs: number,
  ): Promise<void> {
    if (!this.#isModern) {
      await sleep(this.#report.scheduler, cancelMs);
      const params = { requestId: nonce };
      const sent = await this.#post({ jsonrpc: "2.0", method: "notifications/cancelled", params });
      if (typeof sent === "string" || sent.status !== 202) this.#failed(`the cancellation of ${nonce}`, sent, sentMs);
    }
    const response = await calling;
    const isSilent = response === "silent";
    if (isSilent || (typeof response !== "string" && response.status !== 200)) this.#failed(nonce, response, sentMs);
  }

  /** Resumes the stream of a call until it has a response, which may be that the rest of the stream is lost. */
  async #resume(order: McpOrder, stream: EventStream, sentMs: number): Promise<void> {
    const { scheduler, gateways, upgradedSince } = this.#report;
    for (let left = MOST_RESUMES; left > 0 && !stream.isAnswered; left--) {
      await sleep(scheduler, this.#random.exponential(2_000));
      const resumedMs = scheduler.nowMs;
      const limitMs = order.delayMs + RESUME_MS;
      stream.reconnect();
      const received = (bytes: Buffer): void => stream.add(bytes);
      const response = await this.#send("GET", "", received, limitMs, { "last-event-id": stream.lastId ?? "" });
      if (response === "cut" && this.#report.mustSucceed(resumedMs))
        this.#report.broken("a resumed call has a response", order.nonce);
      if (typeof response === "string" || response.status === 200) continue;
      return this.#failed(`the resumption of ${order.nonce}`, response, resumedMs);
    }
    const isLost = stream.messages.some(({ error }) => error?.message?.includes("no longer available"));
    if (!isLost) return this.#check(order, stream.messages, sentMs);
    if (this.#report.mustSucceed(sentMs) && gateways.length === 1 && !upgradedSince(sentMs))
      this.#report.broken("a stream can be resumed", order.nonce);
  }

  /** Gives the server the input that it requests, through any gateway. */
  #respond(nonce: string, message: Answer): void {
    if (message.method !== "elicitation/create") return;
    this.#checkRequest(nonce, message.params?.message ?? "");
    void this.#give(message);
  }

  #checkRequest(nonce: string, asked: string): void {
    // A child process does not name the call for which it sends a request.
    const isOwn = this.#path === STDIO ? asked.startsWith(`${this.#name}-`) : asked === nonce;
    if (!isOwn) this.#report.broken("requests of servers stay apart", `${nonce} got the request of ${asked}`);
  }

  #think(): Promise<void> {
    return sleep(this.#report.scheduler, Math.min(MOST_THOUGHT_MS, this.#random.exponential(MOST_THOUGHT_MS / 2)));
  }

  async #give(request: Answer): Promise<void> {
    const { id } = request;
    await this.#think();
    const sentMs = this.#report.scheduler.nowMs;
    const response = await this.#post({ jsonrpc: "2.0", id, result: inputOf(request) });
    const isAccepted = typeof response !== "string" && response.status === 202;
    if (!isAccepted) this.#failed(`the response to ${id}`, response, sentMs);
  }

  #check({ nonce, bytes }: McpOrder, messages: readonly Answer[], sentMs: number, id = nonce): void {
    const answers = messages.filter(({ method }) => method === undefined);
    const [answer] = answers;
    // A shutdown ends a stream early; the client can resume it.
    if (answer === undefined) {
      this.#failed(nonce, "end", sentMs);
      return;
    }
    if (answers.length > 1) this.#report.broken("a call has one response", `${nonce} got ${answers.length}`);
    if (answer.id !== id) this.#report.broken("responses stay apart", `${id} got the response of ${answer.id}`);
    let last = 0;
    for (const { params } of messages.filter(({ method }) => method === "notifications/progress")) {
      const { message, progressToken, progress = 0 } = params ?? {};
      // Notifications are dropped while a call waits for its retry.
      const isNext = id === nonce ? progress === last + 1 : progress > last;
      if (message !== nonce || progressToken !== nonce || !isNext)
        this.#report.broken("notifications stay apart", `${nonce} got ${JSON.stringify(params)} after number ${last}`);
      last = progress;
    }
    if (answer.error !== undefined) {
      if (this.#report.mustSucceed(sentMs))
        this.#report.broken("requests succeed", `${nonce}: ${answer.error.message}`);
    } else if (
      answer.result?.content?.[0]?.text !== contentOf(nonce, 0, bytes).toString() ||
      (this.#isModern && answer.result.resultType !== "complete")
    )
      this.#report.broken("responses stay apart", `${nonce} got another result`);
  }

  #failed(what: string, response: TextResponse | Ended, sentMs?: number): void {
    if (response === "silent" && this.#report.isCalm) this.#report.broken("requests end", what);
    const isStop = typeof response === "string";
    if (this.#report.mustSucceed(sentMs) || !(isStop || DOCUMENTED.has(response.status)))
      this.#report.broken("requests succeed", `${what}: ${isStop ? response : `${response.status} ${response.body}`}`);
    // A client opens a new session then.
    if (!isStop && response.status === 404) this.#isLost = true;
  }

  #post(message: object): Promise<TextResponse | Ended> {
    return this.#send("POST", JSON.stringify(message));
  }

  #request(
    id: string,
    method: string,
    params: CallParams,
    received?: (bytes: Buffer) => void,
    cutMs?: number,
  ): Promise<TextResponse | Ended> {
    const { name } = params;
    const named = name === undefined ? {} : { "mcp-name": name, "mcp-param-client": this.#name };
    const headers = { "mcp-protocol-version": MODERN, "mcp-method": method, ...named };
    const _meta = { ...params._meta, ...(this.#isModern ? modernMeta(this.#name) : {}) };
    const message = { jsonrpc: "2.0", id, method, params: { ...params, _meta } };
    return this.#send("POST", JSON.stringify(message), received, cutMs, this.#isModern ? headers : {});
  }

  /** Sends a request over a new connection, which the client closes after `cutMs`. */
  async #send(
    method: string,
    body: string,
    received?: (bytes: Buffer) => void,
    cutMs?: number,
    more: Readonly<Record<string, string>> = {},
  ): Promise<TextResponse | Ended> {
    const { network, gateways, faults, scheduler } = this.#report;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return "ECONNREFUSED";
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    const session = this.#session === undefined ? {} : { "mcp-session-id": this.#session };
    const headers = { ...HEADERS, ...session, ...more };
    const response = requestText(peer, method, this.#path, headers, body, received);
    const cut = new Promise<"cut">((resolve) => {
      if (cutMs !== undefined) scheduler.after(cutMs, () => resolve("cut"));
    });
    try {
      return await Promise.race([response, cut]);
    } catch (error) {
      if (error instanceof Cut) return "cut";
      throw error;
    } finally {
      if (cutMs === undefined) side.close();
      else side.abort();
    }
  }
}

function messagesOf({ headers, body }: TextResponse): Answer[] {
  const isStream = headers.get("content-type")?.startsWith("text/event-stream") === true;
  return (isStream ? eventData(body) : [body]).map((text) => JSON.parse(text) as Answer);
}

/** The session ended during the call, which arrived before the news from another replica. */
function isSessionEnd(response: TextResponse): boolean {
  return (
    response.status === 200 &&
    messagesOf(response).some(({ error }) => error?.message?.startsWith("the session ended") === true)
  );
}

/** The input that a server requests names its call. */
function inputOf({ params }: Answer): object {
  return { action: "accept", content: { nonce: params?.message ?? "" } };
}

/** The messages of an event stream, which may come over several connections. */
class EventStream {
  readonly messages: Answer[] = [];
  lastId: string | undefined = undefined;
  readonly #received: (message: Answer) => void;
  #text = "";

  constructor(received: (message: Answer) => void) {
    this.#received = received;
  }

  get isAnswered(): boolean {
    return this.messages.some(({ method }) => method === undefined);
  }

  /** Drops an incomplete event, which the next connection repeats. */
  reconnect(): void {
    this.#text = "";
  }

  add(bytes: Buffer): void {
    const events = (this.#text + bytes.toString()).split("\n\n");
    this.#text = events.pop() ?? "";
    for (const event of events) {
      this.lastId = /^id: ?(.*)$/m.exec(event)?.[1] ?? this.lastId;
      for (const data of eventData(event)) {
        const message = JSON.parse(data) as Answer;
        this.messages.push(message);
        this.#received(message);
      }
    }
  }
}
