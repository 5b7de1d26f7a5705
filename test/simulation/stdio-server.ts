/**
 * An MCP server that a gateway runs as a child process (protocol 2025-06-18), with the tool of `mcp-server.ts`. It may
 * start slowly, print lines that are no messages, and crash.
 */
import type { Child } from "./children.ts";
import type { BackendReport } from "./http-backend.ts";
import type { McpOrder, Message } from "./mcp-server.ts";
import { Cancellations, hasOwnInput, INITIALIZED, Questions, TOOL } from "./mcp-server.ts";
import { contentOf, Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 24 * 3_600_000;
const SLOW_START_MS = 15_000;

export class StdioServer {
  readonly #child: Child;
  readonly #random: Seeded;
  readonly #report: BackendReport;
  readonly #output: Peer;
  readonly #questions: Questions;
  readonly #cancellations: Cancellations;
  #client: string | undefined = undefined;

  constructor(child: Child, random: Seeded, report: BackendReport) {
    this.#child = child;
    this.#random = random;
    this.#report = report;
    this.#questions = new Questions(report);
    this.#cancellations = new Cancellations(report);
    this.#output = new Peer(child.stdout, report.scheduler, PATIENCE_MS);
  }

  async run(): Promise<void> {
    const { isCalm, scheduler } = this.#report;
    const isSlow = !isCalm && this.#random.chance(0.05);
    await sleep(scheduler, this.#random.exponential(isSlow ? SLOW_START_MS : 100));
    if (!isCalm && this.#random.chance(0.02)) {
      await new Peer(this.#child.stderr, scheduler, PATIENCE_MS).write("Error: the simulated server does not start\n");
      this.#child.exit(1);
      return;
    }
    if (this.#random.chance(0.2)) await this.#output.write("this line is no message\n");
    const input = new Peer(this.#child.stdin, scheduler, PATIENCE_MS);
    let text = "";
    while (this.#child.isRunning) {
      const bytes = await input.read();
      if (typeof bytes === "string") break;
      const lines = (text + bytes.toString("latin1")).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) void this.#handle(JSON.parse(line) as Message);
    }
    this.#child.exit(0);
  }

  async #handle(message: Message): Promise<void> {
    const { id, method, params } = message;
    if (method === undefined) this.#questions.received(message);
    this.#cancellations.received("", message);
    if (id === undefined || method === undefined) return;
    const order = params?.arguments;
    if (method === "initialize") return this.#send({ id, result: INITIALIZED });
    if (method === "ping") return this.#send({ id, result: {} });
    if (method === "tools/list") return this.#send({ id, result: { tools: [TOOL] } });
    if (method === "tools/call" && order !== undefined) return this.#call(message, order);
    return this.#send({ id, error: { code: -32601, message: "Method not found" } });
  }

  async #call(message: Message, order: McpOrder): Promise<void> {
    const { id, params } = message;
    const { client, nonce, bytes, delayMs, progress, asks, cancelMs, breaks } = order;
    const { scheduler, arrived, broken } = this.#report;
    const arrivedMs = scheduler.nowMs;
    const token = params?._meta?.progressToken;
    arrived(nonce);
    if (!hasOwnInput(order)) broken("calls stay apart", `${nonce} has another input`);
    this.#client ??= client;
    if (this.#client !== client)
      broken("sessions stay apart", `a process of ${this.#client} got the call ${nonce} of ${client}`);
    if (cancelMs !== undefined) return this.#cancellations.of("", message, order);
    await sleep(scheduler, delayMs);
    if (breaks) return this.#child.exit(1);
    for (let i = 1; i <= progress && token !== undefined; i++) {
      await this.#send({
        method: "notifications/progress",
        params: { progressToken: token, progress: i, message: nonce },
      });
      await sleep(scheduler, this.#random.exponential(200));
    }
    if (asks) {
      await this.#send(this.#questions.request(nonce));
      await this.#questions.answer(nonce, arrivedMs);
    }
    await this.#send({ id, result: { content: [{ type: "text", text: contentOf(nonce, 0, bytes).toString() }] } });
  }

  /** Lines are written whole, also if several calls end at once. */
  async #send(message: object): Promise<void> {
    if (this.#child.isRunning) await this.#output.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }
}
