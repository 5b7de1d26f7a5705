/**
 * A client of an LLM whose users have a token budget per day: sends one chat request at a time, checks the text, its
 * provider, and the budget, and becomes another user some time after the budget is exhausted.
 */
import type { ClientReport } from "./http-client.ts";
import { eventData, requestText } from "./http-request.ts";
import { START_MS } from "./isolate.ts";
import { MOST_BYTES, PROMPT_TOKENS, SECRET_PATTERN } from "./llm-provider.ts";
import { contentOf, Peer, sleep } from "./peer.ts";
import { MOST_CLOCK_ERROR_MS } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

const PATIENCE_MS = 400_000;
const DAY_MS = 24 * 3_600_000;
/** The last response of the providers, or the gateway's own errors. */
const DOCUMENTED = new Set([408, 429, 500, 502, 503, 504]);

interface Chat {
  readonly choices?: readonly {
    readonly index: number;
    readonly message?: { content: string };
    readonly delta?: { content?: string };
  }[];
  readonly usage?: { readonly total_tokens: number } | null;
  readonly error?: unknown;
}

interface Asked {
  readonly nonce: string;
  readonly isStream: boolean;
  readonly choices: number;
  readonly wantedBytes: number;
  readonly sentMs: number;
}

const SECRET = new RegExp(SECRET_PATTERN);
/** The gateway's replacement of a secret. */
const MASK = "<masked>";

/** Spending is in the store, and a restart does not lose it, this long after a response. */
const STORED_MS = 2_000;

interface Spending {
  readonly fromMs: number;
  readonly toMs: number;
  readonly tokens: number;
}

export class LlmClient {
  readonly #name: string;
  readonly #address: string;
  readonly #random: Seeded;
  readonly #report: ClientReport;
  readonly #budget: number;
  #requests = 0;
  #users = 0;
  /** When the user sent its first request. */
  #userMs = 0;
  #day = 0;
  /** The complete responses of the user and day. */
  #spending: Spending[] = [];

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
    const { network, gateways, faults, scheduler } = this.#report;
    const gateway = this.#random.pick(gateways);
    const side = await network.open(this.#address, gateway.address, gateway.port, faults, PATIENCE_MS);
    if (side === undefined) return;
    this.#requests += 1;
    const nonce = `${this.#name}-${this.#requests}`;
    // The day has begun for all gateways.
    const day = Math.floor((START_MS + scheduler.nowMs - MOST_CLOCK_ERROR_MS) / DAY_MS);
    const isExhausted = this.#spent() >= this.#budget;
    if (day !== this.#day || (isExhausted && this.#random.chance(0.3))) {
      this.#users += 1;
      this.#userMs = scheduler.nowMs;
      this.#spending = [];
    }
    this.#day = day;
    const isStream = this.#random.chance(0.6);
    const choices = this.#random.chance(0.3) ? 2 : 1;
    const wantedBytes = this.#wantedBytes();
    const body = JSON.stringify({
      model: "m",
      stream: isStream,
      ...(choices > 1 ? { n: choices } : {}),
      messages: [{ role: "user", content: `${nonce} ${wantedBytes}` }],
    });
    const headers = { "content-type": "application/json", "x-user": `${this.#name}-${this.#users}` };
    const sentMs = scheduler.nowMs;
    this.#report.sent(nonce, "LLM");
    const peer = new Peer(side, scheduler, PATIENCE_MS);
    const response = await requestText(peer, "POST", "/v1/chat/completions", headers, body);
    side.close();
    if (typeof response === "string") {
      if (this.#report.mustSucceed(sentMs)) this.#report.broken("requests succeed", `${nonce}: ${response}`);
    } else if (response.status === 200) this.#check({ nonce, isStream, choices, wantedBytes, sentMs }, response.body);
    else this.#rejected(nonce, response.status, response.body, sentMs);
  }

  /** The last response of a user has as many tokens as the budget has left, which exhausts it exactly. */
  #wantedBytes(): number {
    const left = this.#budget - this.#spent() - PROMPT_TOKENS;
    return left > 0 && left < MOST_BYTES ? left : this.#random.size(10, MOST_BYTES);
  }

  /** Without the spending that a failure may have lost if `isCertain`. */
  #spent(isCertain = false): number {
    return this.#spending
      .filter(({ fromMs, toMs }) => !isCertain || !this.#report.failedBetween(fromMs, toMs + STORED_MS))
      .reduce((total, { tokens }) => total + tokens, 0);
  }

  #rejected(nonce: string, status: number, body: string, sentMs: number): void {
    if (!DOCUMENTED.has(status)) this.#report.broken("requests succeed", `${nonce}: ${status} ${body}`);
    if (!this.#report.mustSucceed(sentMs)) return;
    if (status !== 429) this.#report.broken("requests succeed", `${nonce}: ${status} ${body}`);
    // The reservation of a call whose gateway was killed stays.
    else if (this.#spent() < this.#budget && !this.#report.failedBetween(this.#userMs, this.#report.scheduler.nowMs))
      this.#report.broken(
        "a budget admits what it allows",
        `${this.#name}: ${this.#spent()} of ${this.#budget} tokens`,
      );
  }

  #check({ nonce, isStream, choices, wantedBytes, sentMs }: Asked, body: string): void {
    const { nowMs } = this.#report.scheduler;
    const spent = this.#spent(true);
    // Spending that waits for the store is counted soon after it is available.
    const isCertain = !mayBeNextDay(nowMs) && !this.#report.failedBetween(sentMs - 2 * STORED_MS, nowMs);
    if (spent >= this.#budget && isCertain)
      this.#report.broken("a budget is not exceeded", `${nonce}: ${spent} of ${this.#budget} tokens were spent`);
    const data = isStream ? eventData(body) : [body];
    const isComplete = !isStream || data.at(-1) === "[DONE]";
    const parts = data.filter((text) => text !== "[DONE]").map((text) => JSON.parse(text) as Chat);
    const isFailed = !isComplete || parts.some(({ error }) => error !== undefined);
    for (let index = 0; index < choices; index++) {
      const text = parts
        .flatMap((part) => part.choices ?? [])
        .filter((choice) => choice.index === index)
        .map(({ message, delta }) => message?.content ?? delta?.content ?? "")
        .join("");
      this.#checkText(nonce, text, isFailed);
      if (index === 0 && !isFailed && text.replace(MASK, "").length !== wantedBytes)
        this.#report.broken("responses are complete", `${nonce}: ${text.length} of ${wantedBytes} bytes`);
    }
    const tokens = PROMPT_TOKENS + wantedBytes;
    if (!isFailed) {
      this.#spending.push({ fromMs: sentMs, toMs: nowMs, tokens });
      this.#report.spent(this.#address, tokens);
    } else if (this.#report.mustSucceed(sentMs))
      this.#report.broken("requests succeed", `${nonce}: the stream ended early`);
  }

  #checkText(nonce: string, text: string, isFailed: boolean): void {
    if (SECRET.test(text)) this.#report.broken("guards mask every match", `${nonce} got a secret`);
    const rest = text.replace(MASK, "");
    // A stream that breaks off may end within a secret.
    const own = isFailed ? rest.replace(/K.*$/s, "") : rest;
    const provider = /@(\w+)\|/.exec(own)?.[1] ?? "one";
    const expected = [provider, "one", "two"].map((name) => contentOf(`${nonce}@${name}`, 0, own.length).toString());
    if (!expected.includes(own)) this.#report.broken("responses stay apart", `${nonce} got another text`);
  }
}

/** True around midnight, when the day has begun for some gateways because of the errors of their clocks. */
function mayBeNextDay(ms: number): boolean {
  const dayOf = (errorMs: number): number => Math.floor((START_MS + ms + errorMs) / DAY_MS);
  return dayOf(MOST_CLOCK_ERROR_MS) !== dayOf(-MOST_CLOCK_ERROR_MS);
}
