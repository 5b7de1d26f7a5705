/**
 * A user of an LLM with a token budget per day: sends one chat request at a time, and checks the text, its provider,
 * and the budget.
 */
import type { ClientReport } from "./http-client.ts";
import { eventData, requestText } from "./http-request.ts";
import { contentOf, Peer, sleep } from "./peer.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 400_000;
const DAY_MS = 24 * 3_600_000;
/** The last response of the providers, or the gateway's own errors. */
const DOCUMENTED = new Set([408, 429, 500, 502, 503, 504]);

interface Chat {
  readonly choices: readonly { readonly message?: { content: string }; readonly delta?: { content?: string } }[];
  readonly usage?: { readonly total_tokens: number } | null;
  readonly error?: unknown;
}

export class LlmClient {
  readonly #name: string;
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;
  readonly #budget: number;
  #requests = 0;
  #day = 0;
  /** The tokens of the complete responses of the day. */
  #spent = 0;

  constructor(index: number, random: Seeded, report: ClientReport, budget: number) {
    this.#name = `l${index}`;
    this.#address = `10.3.${index >> 8}.${index & 255}`;
    this.#random = random;
    this.#report = report;
    this.#budget = budget;
  }

  async run(): Promise<void> {
    const { scheduler, pauseMs } = this.#report;
    while (!this.#report.isOver()) {
      await sleep(scheduler, this.#random.exponential(pauseMs));
      if (this.#report.isOver()) return;
      await this.#ask();
    }
  }

  async #ask(): Promise<void> {
    const { network, gateway, faults, scheduler } = this.#report;
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return;
    this.#requests += 1;
    const nonce = `${this.#name}-${this.#requests}`;
    const isStream = this.#random.chance(0.6);
    const body = JSON.stringify({
      model: "m",
      stream: isStream,
      messages: [{ role: "user", content: `${nonce} say` }],
    });
    const headers = { "content-type": "application/json", "x-user": this.#name };
    const day = Math.floor(scheduler.nowMs / DAY_MS);
    if (day !== this.#day) this.#spent = 0;
    this.#day = day;
    this.#report.sent(nonce, "LLM");
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    const response = await requestText(peer, "POST", "/v1/chat/completions", headers, body);
    side.close();
    if (typeof response === "string") {
      if (this.#report.isCalm) this.#report.broken("requests succeed", `${nonce}: ${response}`);
    } else if (response.status === 200) this.#check(nonce, isStream, response.body);
    else this.#rejected(nonce, response.status, response.body);
  }

  #rejected(nonce: string, status: number, body: string): void {
    if (!DOCUMENTED.has(status)) this.#report.broken("requests succeed", `${nonce}: ${status} ${body}`);
    if (!this.#report.isCalm) return;
    if (status !== 429) this.#report.broken("requests succeed", `${nonce}: ${status} ${body}`);
    else if (this.#spent < this.#budget)
      this.#report.broken("a budget admits what it allows", `${this.#name}: ${this.#spent} of ${this.#budget} tokens`);
  }

  #check(nonce: string, isStream: boolean, body: string): void {
    if (this.#spent >= this.#budget)
      this.#report.broken("a budget is not exceeded", `${nonce}: ${this.#spent} of ${this.#budget} tokens were spent`);
    const data = isStream ? eventData(body) : [body];
    const isComplete = !isStream || data.at(-1) === "[DONE]";
    const parts = data.filter((text) => text !== "[DONE]").map((text) => JSON.parse(text) as Chat);
    const text = parts
      .map(({ choices }) => choices?.[0]?.message?.content ?? choices?.[0]?.delta?.content ?? "")
      .join("");
    const provider = /@(\w+)\|/.exec(text)?.[1] ?? "one";
    const expected = [provider, "one", "two"].map((name) => contentOf(`${nonce}@${name}`, 0, text.length).toString());
    if (!expected.includes(text)) this.#report.broken("responses stay apart", `${nonce} got another text`);
    const isFailed = !isComplete || parts.some(({ error }) => error !== undefined);
    if (!isFailed) this.#spent += 10 + text.length;
    else if (this.#report.isCalm) this.#report.broken("requests succeed", `${nonce}: the stream ended early`);
  }
}
