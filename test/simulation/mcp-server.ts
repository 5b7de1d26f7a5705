/**
 * A remote MCP server (streamable HTTP, protocol 2025-06-18) with one tool that returns bytes of its caller, and may
 * request input from it. It may close the stream of a call before its end, which the gateway then resumes. It checks
 * that each of its sessions serves one client, that a call arrives once, and that the cancellation of a call arrives.
 */
import type { BackendReport } from "./http-backend.ts";
import { endEvents, McpEndpoint, sendEvent, sendResponse, startEvents } from "./mcp-endpoint.ts";
import { contentOf, type Head, type Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

/** The arguments of the tool. */
export interface McpOrder {
  readonly client: string;
  readonly nonce: string;
  /** Bytes of the call, as many as the client wants to send. */
  readonly input: string;
  readonly bytes: number;
  readonly delayMs: number;
  /** Progress notifications before the result; with at least one, the response is an event stream. */
  readonly progress: number;
  /** Requests input from the client before it responds. */
  readonly asks: boolean;
  /** The client cancels the call after this time. */
  readonly cancelMs: number | undefined;
  /** Breaks the connection instead of responding. */
  readonly breaks: boolean;
}

/** The requests of a server that wait for a response of a client. */
export class Questions {
  readonly #report: BackendReport;
  readonly #waiting = new Map<string, (response: Message) => void>();

  constructor(report: BackendReport) {
    this.#report = report;
  }

  /** The request to send for this call. */
  request(nonce: string): { readonly id: string; readonly method: string; readonly params: object } {
    const params = { message: nonce, requestedSchema: { type: "object", properties: {} } };
    return { id: `ask-${nonce}`, method: "elicitation/create", params };
  }

  /** Resolves when the client has responded, or after a time limit. The call arrived at `arrivedMs`. */
  async answer(nonce: string, arrivedMs: number): Promise<void> {
    const { scheduler, broken } = this.#report;
    const late = scheduler.after(LATE_MS, () => {
      if (this.#report.mustSucceed(arrivedMs)) broken("responses of clients reach their server", nonce);
    });
    const response = await new Promise<Message | undefined>((resolve) => {
      const limit = scheduler.after(ANSWER_MS, () => resolve(undefined));
      this.#waiting.set(`ask-${nonce}`, (message) => {
        scheduler.cancel(limit);
        resolve(message);
      });
    });
    this.#waiting.delete(`ask-${nonce}`);
    scheduler.cancel(late);
    const given = response?.result?.content?.nonce;
    if (response?.result !== undefined && given !== nonce)
      broken("responses of clients stay apart", `the request of ${nonce} got ${given}`);
  }

  /** A response that is late has no receiver. */
  received(message: Message): void {
    this.#waiting.get(String(message.id))?.(message);
  }
}

/** The calls that clients will cancel. */
export class Cancellations {
  readonly #report: BackendReport;
  readonly #waiting = new Map<string, () => void>();
  /** A cancellation may arrive before its call, over another connection. */
  readonly #early = new Set<string>();

  constructor(report: BackendReport) {
    this.#report = report;
  }

  /** Resolves when the call is canceled, or some time after it had to be. `session` is the session of the server. */
  async of(session: string, { id }: Message, order: McpOrder): Promise<void> {
    const { nonce, cancelMs = 0 } = order;
    const { scheduler, mustSucceed, broken } = this.#report;
    const arrivedMs = scheduler.nowMs;
    const key = `${session} ${id}`;
    if (this.#early.delete(key)) return;
    await new Promise<void>((resolve) => {
      const late = scheduler.after(cancelMs + LATE_MS, () => {
        if (followsCall(order) && mustSucceed(arrivedMs)) broken("cancellations reach the server", nonce);
        resolve();
      });
      this.#waiting.set(key, () => {
        scheduler.cancel(late);
        resolve();
      });
    });
    this.#waiting.delete(key);
  }

  received(session: string, { method, params }: Message): void {
    if (method !== "notifications/cancelled") return;
    const key = `${session} ${params?.requestId}`;
    const cancel = this.#waiting.get(key);
    if (cancel === undefined) this.#early.add(key);
    else cancel();
  }
}

export interface Message {
  readonly id?: number | string;
  readonly method?: string;
  /** Of a response to the server. */
  readonly result?: { readonly content?: { readonly nonce?: string } };
  readonly params?: {
    readonly protocolVersion?: string;
    readonly arguments?: McpOrder;
    readonly requestId?: number | string;
    readonly _meta?: { readonly progressToken?: string | number };
  };
}

interface Call {
  readonly message: Message;
  readonly order: McpOrder;
  readonly arrivedMs: number;
  /** The events have ids. */
  readonly isResumable: boolean;
}

/**
 * True if the cancellation arrives at the gateway after its call, which is sent over another connection. Otherwise the
 * gateway does not know the call yet.
 */
export function followsCall({ cancelMs = 0, input }: McpOrder): boolean {
  return input === "" && cancelMs > OVERTAKING_MS;
}

/** The input of a call belongs to it and is complete. */
export function hasOwnInput({ nonce, input }: McpOrder): boolean {
  return input === contentOf(nonce, 0, input.length).toString();
}

const ANSWER_MS = 60_000;
/** The gateway closes a connection within this time after it ends the session, also on a slow network. */
const UNANSWERED_MS = 60_000;
/** Without faults, responses and cancellations of clients arrive sooner, also through another gateway. */
export const LATE_MS = 5_000;
/** Without faults, a small message arrives sooner. */
const OVERTAKING_MS = 100;
export const TOOL = { name: "echo", description: "Returns bytes.", inputSchema: { type: "object" } };
export const INITIALIZED = {
  protocolVersion: "2025-06-18",
  capabilities: { tools: {} },
  serverInfo: { name: "simulated", version: "1" },
};

export class McpServer {
  readonly #report: BackendReport;
  readonly #random: Seeded;
  readonly #questions: Questions;
  readonly #cancellations: Cancellations;
  /** The calls whose streams were closed early, by their nonce. */
  readonly #resumable = new Map<string, Call>();
  /** The client of each session, undefined until its first call. */
  #sessions = new Map<string, string | undefined>();
  #count = 0;
  readonly #endpoint: McpEndpoint;

  constructor(address: string, port: number, random: Seeded, report: BackendReport) {
    this.#report = report;
    this.#random = random;
    this.#questions = new Questions(report);
    this.#cancellations = new Cancellations(report);
    this.#endpoint = new McpEndpoint(address, port, report, (peer, head, body) => this.#respond(peer, head, body));
  }

  close(): void {
    this.#endpoint.close();
  }

  async #respond(peer: Peer, head: Head, body: string): Promise<boolean> {
    const [method] = head.first.split(" ");
    const session = head.headers.get("mcp-session-id");
    if (method === "GET") return this.#resume(peer, head.headers.get("last-event-id"));
    if (method === "DELETE") {
      this.#sessions.delete(session ?? "");
      return this.#random.chance(0.1) ? this.#waitForClose(peer) : sendResponse(peer, 200);
    }
    const message = JSON.parse(body) as Message;
    // A restart loses the sessions of the server.
    if (!this.#report.isCalm && this.#random.chance(0.002)) this.#sessions = new Map();
    if (message.method === "initialize") return this.#initialize(peer, message);
    if (session !== undefined && !this.#sessions.has(session)) return sendResponse(peer, 404);
    if (message.method === undefined) this.#questions.received(message);
    this.#cancellations.received(session ?? "", message);
    if (message.id === undefined || message.method === undefined) return sendResponse(peer, 202);
    if (message.method === "ping") return sendResponse(peer, 200, { id: message.id, result: {} });
    if (message.method === "tools/list") return sendResponse(peer, 200, { id: message.id, result: { tools: [TOOL] } });
    const order = message.params?.arguments;
    if (message.method === "tools/call" && order !== undefined) return this.#call(peer, message, order, session ?? "");
    const error = { code: -32601, message: "Method not found" };
    return sendResponse(peer, 200, { id: message.id, error });
  }

  /** Does not respond to the end of a session. The gateway must not keep the connection. */
  async #waitForClose(peer: Peer): Promise<false> {
    peer.limitMs = UNANSWERED_MS;
    if ((await peer.read()) === "silent" && !peer.side.isBlackhole)
      this.#report.broken("an unanswered end of a session closes its connection", peer.side.label);
    return false;
  }

  #initialize(peer: Peer, message: Message): Promise<boolean> {
    this.#count += 1;
    const session = `s${this.#count}`;
    this.#sessions.set(session, undefined);
    return sendResponse(peer, 200, { id: message.id, result: INITIALIZED }, `mcp-session-id: ${session}\r\n`);
  }

  async #call(peer: Peer, message: Message, order: McpOrder, session: string): Promise<boolean> {
    const { client, nonce, bytes, delayMs, progress, asks, cancelMs, breaks } = order;
    const arrivedMs = this.#report.scheduler.nowMs;
    this.#report.arrived(nonce);
    if (!hasOwnInput(order)) this.#report.broken("calls stay apart", `${nonce} has another input`);
    const owner = this.#sessions.get(session) ?? client;
    if (owner !== client) this.#report.broken("sessions stay apart", `${session} of ${owner} got a call of ${client}`);
    if (this.#sessions.has(session)) this.#sessions.set(session, owner);
    if (cancelMs !== undefined) {
      await this.#cancellations.of(session, message, order);
      return false;
    }
    await sleep(this.#report.scheduler, delayMs);
    if (breaks) return false;
    const result = { content: [{ type: "text", text: contentOf(nonce, 0, bytes).toString() }] };
    if (progress === 0 && !asks) return sendResponse(peer, 200, { id: message.id, result });
    return this.#stream(peer, { message, order, arrivedMs, isResumable: this.#random.chance(0.5) }, 0);
  }

  /** The events of a call from a number on: progress notifications, a request to the client, and the result. */
  async #stream(peer: Peer, call: Call, from: number): Promise<boolean> {
    const { message, order, arrivedMs, isResumable } = call;
    const { nonce, bytes, progress, asks } = order;
    if (!(await startEvents(peer))) return false;
    const progressToken = message.params?._meta?.progressToken;
    const id = (number: number): string => (isResumable ? `id: ${nonce}/${number}\nretry: 100\n` : "");
    for (let i = from; i < progress; i++) {
      const params = { progressToken, progress: i + 1, message: nonce };
      if (!(await sendEvent(peer, { method: "notifications/progress", params }, id(i)))) return false;
      await sleep(this.#report.scheduler, this.#random.exponential(200));
      if (!isResumable || this.#random.chance(0.8)) continue;
      this.#resumable.set(nonce, call);
      return endEvents(peer);
    }
    if (asks) {
      if (!(await sendEvent(peer, this.#questions.request(nonce)))) return false;
      await this.#questions.answer(nonce, arrivedMs);
    }
    const result = { content: [{ type: "text", text: contentOf(nonce, 0, bytes).toString() }] };
    if (!(await sendEvent(peer, { id: message.id, result }, id(progress)))) return false;
    return endEvents(peer);
  }

  async #resume(peer: Peer, lastEventId = ""): Promise<boolean> {
    const [nonce = "", number] = lastEventId.split("/");
    const call = this.#resumable.get(nonce);
    if (call === undefined) return sendResponse(peer, 405);
    this.#resumable.delete(nonce);
    return this.#stream(peer, call, Number(number) + 1);
  }
}
