/**
 * An MCP client. With the protocol 2025-06-18, it opens a session, calls the tool, also several times at once and over
 * new connections, and ends the session or leaves it. With 2026-07-28, it only calls the tool. It checks that every call
 * gets exactly its own messages.
 */

import type { ClientReport } from "./http-client.ts";
import { eventData, requestText, type TextResponse } from "./http-request.ts";
import type { McpOrder } from "./mcp-server.ts";
import { contentOf, Peer, type Stop, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 400_000;
/** Shorter than the idle timeout of sessions, also if the wall clock jumps: stored sessions expire by it. */
const IDLE_MS = 240_000;
/** A server that the gateway runs as a child process. */
const STDIO = "/stdio";
const PATHS = ["/mcp", STDIO];
const MODERN = "2026-07-28";
const MODERN_META = {
  "io.modelcontextprotocol/protocolVersion": MODERN,
  "io.modelcontextprotocol/clientInfo": { name: "simulated", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const MODERN_HEADERS = { "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo" };
const HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };
/** A session that its server has lost, or that could not be opened again, is 404. */
const DOCUMENTED = new Set([404, 408, 429, 502, 503, 504]);

interface Answer {
  readonly id?: string;
  readonly method?: string;
  readonly params?: { readonly progressToken?: string; readonly progress?: number; readonly message?: string };
  readonly result?: { readonly content?: readonly { readonly text?: string }[] };
  readonly error?: { readonly message?: string };
}

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
      await (this.#isModern ? this.#callSeveralTimes() : this.#useSession());
    }
  }

  async #useSession(): Promise<void> {
    const random = this.#random;
    this.#session = undefined;
    this.#isLost = false;
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
    if (this.#report.mustSucceed() && (typeof response === "string" || response.status !== 404))
      this.#report.broken("a session ends everywhere", `${this.#name}: ${JSON.stringify(response)}`);
  }

  async #callSeveralTimes(): Promise<void> {
    const random = this.#random;
    for (let rounds = 1 + random.int(5); rounds > 0 && !this.#isLost; rounds--) {
      await Promise.all(Array.from({ length: random.chance(0.3) ? 3 : 1 }, () => this.#call()));
      await sleep(this.#report.scheduler, Math.min(IDLE_MS, random.exponential(random.chance(0.1) ? 120_000 : 2_000)));
    }
  }

  async #call(): Promise<void> {
    const random = this.#random;
    const isCalm = this.#report.isCalm;
    this.#calls += 1;
    const nonce = `${this.#name}-${this.#calls}`;
    const order: McpOrder = {
      client: this.#name,
      nonce,
      bytes: random.size(1, random.chance(0.05) ? 300_000 : 5_000),
      delayMs: Math.round(random.exponential(random.chance(0.1) ? 20_000 : 100)),
      progress: random.chance(0.4) ? 1 + random.int(5) : 0,
      asks: !this.#isModern && random.chance(0.1),
      breaks: !isCalm && random.chance(0.03),
    };
    const sentMs = this.#report.scheduler.nowMs;
    this.#report.sent(nonce, "MCP");
    let text = "";
    const respond = (bytes: Buffer): void => {
      const events = (text + bytes.toString()).split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) for (const data of eventData(event)) this.#respond(nonce, JSON.parse(data) as Answer);
    };
    const _meta = { progressToken: nonce, ...(this.#isModern ? MODERN_META : {}) };
    const params = { name: "echo", arguments: order, _meta };
    const call = { jsonrpc: "2.0", id: nonce, method: "tools/call", params };
    const response = await this.#send("POST", JSON.stringify(call), respond);
    if (typeof response === "string" || response.status !== 200) return this.#failed(nonce, response, sentMs);
    this.#check(order, response, sentMs);
  }

  /** Gives the server the input that it requests, through any gateway. */
  #respond(nonce: string, { id, method, params }: Answer): void {
    if (method !== "elicitation/create") return;
    const asked = params?.message ?? "";
    // A child process does not name the call for which it sends a request.
    const isOwn = this.#path === STDIO ? asked.startsWith(`${this.#name}-`) : asked === nonce;
    if (!isOwn) this.#report.broken("requests of servers stay apart", `${nonce} got the request of ${asked}`);
    void this.#post({ jsonrpc: "2.0", id, result: { action: "accept", content: { nonce: asked } } }).then(
      (response) => {
        if (typeof response === "string" || response.status !== 202) this.#failed(`the response to ${id}`, response);
      },
    );
  }

  #check({ nonce, bytes }: McpOrder, { headers, body }: TextResponse, sentMs: number): void {
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") === true;
    const messages = (isStream ? eventData(body) : [body]).map((text) => JSON.parse(text) as Answer);
    const answers = messages.filter(({ method }) => method === undefined);
    const [answer] = answers;
    // A shutdown ends a stream early; the client can resume it.
    if (answer === undefined) {
      this.#failed(nonce, "end", sentMs);
      return;
    }
    if (answers.length > 1) this.#report.broken("a call has one response", `${nonce} got ${answers.length}`);
    if (answer.id !== nonce) this.#report.broken("responses stay apart", `${nonce} got the response of ${answer.id}`);
    const progress = messages.filter(({ method }) => method === "notifications/progress");
    for (const [i, { params }] of progress.entries())
      if (params?.message !== nonce || params.progressToken !== nonce || params.progress !== i + 1)
        this.#report.broken("notifications stay apart", `${nonce} got ${JSON.stringify(params)} as number ${i + 1}`);
    if (answer.error !== undefined) {
      if (this.#report.mustSucceed(sentMs))
        this.#report.broken("requests succeed", `${nonce}: ${answer.error.message}`);
    } else if (answer.result?.content?.[0]?.text !== contentOf(nonce, 0, bytes).toString())
      this.#report.broken("responses stay apart", `${nonce} got another text`);
  }

  #failed(what: string, response: TextResponse | Stop, sentMs?: number): void {
    const isStop = typeof response === "string";
    if (this.#report.mustSucceed(sentMs) || !(isStop || DOCUMENTED.has(response.status)))
      this.#report.broken("requests succeed", `${what}: ${isStop ? response : `${response.status} ${response.body}`}`);
    // A client opens a new session then.
    if (!isStop && response.status === 404) this.#isLost = true;
  }

  #post(message: object): Promise<TextResponse | Stop> {
    return this.#send("POST", JSON.stringify(message));
  }

  /** Sends a request over a new connection. */
  async #send(method: string, body: string, received?: (bytes: Buffer) => void): Promise<TextResponse | Stop> {
    const { network, gateways, faults, scheduler } = this.#report;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return "ECONNREFUSED";
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    const session = this.#session === undefined ? {} : { "mcp-session-id": this.#session };
    const own = this.#isModern ? MODERN_HEADERS : session;
    const response = await requestText(peer, method, this.#path, { ...HEADERS, ...own }, body, received);
    side.close();
    return response;
  }
}
