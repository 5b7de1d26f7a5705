/**
 * A remote MCP server of the protocol 2026-07-28 with the tool of `mcp-server.ts`. It has no sessions: a call that needs
 * input ends with `input_required`, and its retry has the input. It checks that each request names its client, that its
 * headers belong to its message, that a call and its retry arrive once, and that a canceled call closes its stream.
 */
import type { BackendReport } from "./http-backend.ts";
import { endEvents, McpEndpoint, sendEvent, sendResponse, startEvents } from "./mcp-endpoint.ts";
import { followsCall, hasOwnInput, LATE_MS, type McpOrder, type Message, Questions, TOOL } from "./mcp-server.ts";
import { contentOf, type Head, type Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

export const MODERN = "2026-07-28";
const META = "io.modelcontextprotocol";
const METHOD_NOT_FOUND = -32601;
const HEADER_MISMATCH = -32020;
const CACHED = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
const DISCOVERED = {
  ...CACHED,
  supportedVersions: [MODERN],
  capabilities: { tools: {} },
  _meta: { [`${META}/serverInfo`]: { name: "simulated", version: "1" } },
};
/** The name of the client is also in a header. */
const INPUT = { type: "object", properties: { client: { type: "string", "x-mcp-header": "Client" } } };
const TOOLS = { ...CACHED, tools: [{ ...TOOL, inputSchema: INPUT }] };

interface ModernMessage extends Message {
  readonly params?: Message["params"] & {
    readonly name?: string;
    readonly requestState?: string;
    readonly inputResponses?: { readonly input?: Message["result"] };
  };
}

/** The envelope of a request. */
export function modernMeta(client: string): object {
  return {
    [`${META}/protocolVersion`]: MODERN,
    [`${META}/clientInfo`]: { name: client, version: "1" },
    [`${META}/clientCapabilities`]: { elicitation: {} },
  };
}

export class ModernMcpServer {
  readonly #report: BackendReport;
  readonly #random: Seeded;
  readonly #endpoint: McpEndpoint;
  readonly #questions: Questions;
  /** The calls that have required input and were not retried. */
  readonly #suspended = new Set<string>();

  constructor(address: string, port: number, random: Seeded, report: BackendReport) {
    this.#report = report;
    this.#random = random;
    this.#questions = new Questions(report);
    this.#endpoint = new McpEndpoint(address, port, report, (peer, head, body) => this.#respond(peer, head, body));
  }

  close(): void {
    this.#endpoint.close();
  }

  async #respond(peer: Peer, head: Head, body: string): Promise<boolean> {
    if (!head.first.startsWith("POST ")) return sendResponse(peer, 405);
    const message = JSON.parse(body) as ModernMessage;
    const { id, method, params } = message;
    const order = params?.arguments;
    if (method === "server/discover" || method === "tools/list" || method === "tools/call") this.#check(head, message);
    if (method === "server/discover") return sendResponse(peer, 200, { id, result: DISCOVERED });
    if (method === "tools/list") return sendResponse(peer, 200, { id, result: TOOLS });
    if (method === "tools/call" && order !== undefined) return this.#call(peer, head, message, order);
    return sendResponse(peer, 404, { id, error: { code: METHOD_NOT_FOUND, message: "Method not found" } });
  }

  #check({ headers }: Head, { method, params }: ModernMessage): void {
    const meta = (params?._meta ?? {}) as Readonly<Record<string, { readonly name?: string } | string | undefined>>;
    const sent = ["mcp-protocol-version", "mcp-method", "mcp-name"].map((name) => headers.get(name));
    const meant = [meta[`${META}/protocolVersion`], method, params?.name];
    if (sent.join() !== meant.join() || sent[0] !== MODERN || headers.has("mcp-session-id"))
      this.#report.broken("headers belong to their message", `${sent.join()} and ${meant.join()}`);
    const order = params?.arguments;
    const info = meta[`${META}/clientInfo`];
    const client = typeof info === "object" ? info.name : undefined;
    if (client === undefined || meta[`${META}/clientCapabilities`] === undefined)
      this.#report.broken("requests name their client", JSON.stringify(meta));
    if (order !== undefined && order.client !== client)
      this.#report.broken("requests name their client", `${order.nonce} has the name of ${client}`);
  }

  async #call(peer: Peer, { headers }: Head, message: ModernMessage, order: McpOrder): Promise<boolean> {
    const { id, params } = message;
    const { nonce, client, delayMs, progress, asks, cancelMs, breaks } = order;
    const { scheduler, arrived, broken } = this.#report;
    const arrivedMs = scheduler.nowMs;
    const named = headers.get("mcp-param-client");
    if (named !== undefined && named !== client)
      broken("headers belong to their message", `${nonce} has the parameter of ${named}`);
    if (!hasOwnInput(order)) broken("calls stay apart", `${nonce} has another input`);
    // The gateway could not load the list of tools.
    if (named === undefined)
      return sendResponse(peer, 400, { id, error: { code: HEADER_MISMATCH, message: "Header mismatch" } });
    if (params?.requestState === undefined) arrived(nonce);
    else return this.#continue(peer, message, order);
    if (cancelMs !== undefined) return this.#waitForCancellation(peer, order, arrivedMs);
    await sleep(scheduler, delayMs);
    const isStream = progress > 0 || this.#random.chance(0.2);
    if (breaks && (!isStream || this.#random.chance(0.5)))
      return this.#random.chance(0.5) ? sendResponse(peer, this.#random.pick([500, 502, 503])) : false;
    const result = (): object => (asks ? this.#requireInput(nonce, arrivedMs) : resultOf(order));
    if (!isStream) return sendResponse(peer, 200, { id, result: result() });
    if (!(await startEvents(peer))) return false;
    for (let i = 1; i <= progress; i++) {
      const about = { progressToken: params?._meta?.progressToken, progress: i, message: nonce };
      if (!(await sendEvent(peer, { method: "notifications/progress", params: about }))) return false;
      await sleep(scheduler, this.#random.exponential(200));
    }
    if (breaks) return false;
    return (await sendEvent(peer, { id, result: result() })) && endEvents(peer);
  }

  #requireInput(nonce: string, arrivedMs: number): object {
    const { method, params } = this.#questions.request(nonce);
    this.#suspended.add(nonce);
    void this.#questions.answer(nonce, arrivedMs);
    return { resultType: "input_required", inputRequests: { input: { method, params } }, requestState: nonce };
  }

  /** Handles the retry of a call that required input. */
  #continue(peer: Peer, { id, params }: ModernMessage, order: McpOrder): Promise<boolean> {
    const { nonce } = order;
    const { requestState, inputResponses } = params ?? {};
    if (requestState !== nonce)
      this.#report.broken("responses of clients stay apart", `${nonce} has the state of ${requestState}`);
    if (!this.#suspended.delete(nonce)) this.#report.broken("a call is continued once", nonce);
    this.#questions.received({ id: `ask-${nonce}`, result: inputResponses?.input ?? {} });
    return sendResponse(peer, 200, { id, result: resultOf(order) });
  }

  async #waitForCancellation(peer: Peer, order: McpOrder, arrivedMs: number): Promise<false> {
    const { nonce, cancelMs = 0 } = order;
    peer.limitMs = cancelMs + LATE_MS;
    if ((await peer.read()) === "silent" && followsCall(order) && this.#report.mustSucceed(arrivedMs))
      this.#report.broken("cancellations reach the server", nonce);
    return false;
  }
}

function resultOf({ nonce, bytes }: McpOrder): object {
  return { resultType: "complete", content: [{ type: "text", text: contentOf(nonce, 0, bytes).toString() }] };
}
