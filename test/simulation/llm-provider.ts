/**
 * An LLM provider with the OpenAI chat API. The text of a response names the exchange and the provider, and has the
 * length that the request asks for. Texts may contain a secret, which the gateway must mask, also in the events of
 * several choices. The provider fails now and then, also for a while (a storm of 429 and 5xx).
 */
import type { BackendReport } from "./http-backend.ts";
import type { Side } from "./network.ts";
import { chunk, contentOf, Peer, readBody, readHead, sleep } from "./peer.ts";
import { OUTSIDE } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

interface ChatRequest {
  readonly stream?: boolean;
  /** The number of choices. */
  readonly n?: number;
  readonly messages: readonly { readonly content: string }[];
}

const PATIENCE_MS = 300_000;
const STORM_EVERY_MS = 2 * 3_600_000;
const STORM_MS = 10 * 60_000;
/** The tokens that a provider counts for every request. */
export const PROMPT_TOKENS = 10;
export const MOST_BYTES = 4_000;
/** Of the choices after the first. */
const MOST_OTHER_BYTES = 500;
/** A guard of the route masks this pattern. */
export const SECRET_PATTERN = "KEY-[0-9]{12}";
const SECRET = "KEY-123456789012";
const MODEL = { id: "x", created: 1, model: "m" };

export class LlmProvider {
  readonly #name: string;
  readonly #report: BackendReport;
  readonly #random: Seeded;
  readonly #open = new Set<Side>();
  #stormUntilMs = 0;
  #nextStormMs: number;

  constructor(name: string, address: string, random: Seeded, report: BackendReport) {
    this.#name = name;
    this.#report = report;
    this.#random = random;
    this.#nextStormMs = random.exponential(STORM_EVERY_MS);
    report.network.listen(address, 80, { process: OUTSIDE, accept: (side) => void this.#serve(side) });
  }

  close(): void {
    for (const side of this.#open) side.close();
  }

  async #serve(side: Side): Promise<void> {
    const peer = new Peer(side, this.#report.scheduler, PATIENCE_MS);
    this.#open.add(side);
    for (;;) {
      const head = await readHead(peer);
      if (typeof head === "string") break;
      const chunks: Buffer[] = [];
      const stop = await readBody(peer, head, (bytes) => void chunks.push(bytes), false);
      if (stop !== undefined) break;
      if (!(await this.#respond(peer, JSON.parse(Buffer.concat(chunks).toString()) as ChatRequest))) break;
    }
    this.#open.delete(side);
    side.close();
  }

  async #respond(peer: Peer, { stream, n = 1, messages }: ChatRequest): Promise<boolean> {
    const random = this.#random;
    const [nonce = "", wantedBytes] = messages[0]?.content.split(" ") ?? [];
    this.#report.arrived(nonce);
    await sleep(this.#report.scheduler, random.exponential(500));
    if (this.#isFailing()) {
      const status = random.pick([429, 500, 503]);
      const retry = random.chance(0.5) ? `retry-after: ${1 + random.int(20)}\r\n` : "";
      const body = JSON.stringify({ error: { message: "failed", type: "server_error" } });
      return this.#send(peer, `HTTP/1.1 ${status} Failed\r\n${retry}`, body);
    }
    const bytes = Number(wantedBytes);
    const texts = Array.from({ length: n }, (_, i) =>
      this.#text(nonce, i === 0 ? bytes : random.size(1, MOST_OTHER_BYTES)),
    );
    // Tokens as the provider counts them: each wanted byte is one, so that the client can recompute them.
    const total = PROMPT_TOKENS + bytes;
    const usage = { prompt_tokens: PROMPT_TOKENS, completion_tokens: bytes, total_tokens: total };
    if (stream === true) return this.#stream(peer, texts, usage);
    const choices = texts.map((content, index) => {
      return { index, message: { role: "assistant", content }, finish_reason: "stop" };
    });
    const body = JSON.stringify({ ...MODEL, object: "chat.completion", choices, usage });
    return this.#send(peer, "HTTP/1.1 200 OK\r\n", body);
  }

  #text(nonce: string, bytes: number): string {
    const text = contentOf(`${nonce}@${this.#name}`, 0, bytes).toString();
    if (this.#random.chance(0.5)) return text;
    const at = this.#random.int(bytes + 1);
    return `${text.slice(0, at)}${SECRET}${text.slice(at)}`;
  }

  #isFailing(): boolean {
    if (this.#report.isCalm) return false;
    const { nowMs } = this.#report.scheduler;
    if (nowMs >= this.#nextStormMs) {
      this.#stormUntilMs = nowMs + STORM_MS;
      this.#nextStormMs = nowMs + STORM_MS + this.#random.exponential(STORM_EVERY_MS);
    }
    return this.#random.chance(nowMs < this.#stormUntilMs ? 0.9 : 0.02);
  }

  /** The events of several choices are in any order. */
  async #stream(peer: Peer, texts: readonly string[], usage: object): Promise<boolean> {
    const random = this.#random;
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    if ((await peer.write(head)) !== undefined) return false;
    const isBroken = !this.#report.isCalm && random.chance(0.03);
    const object = "chat.completion.chunk";
    const open = texts.map((text, index) => ({ index, text }));
    while (open.length > 0) {
      const choice = random.pick(open);
      const { index } = choice;
      const content = choice.text.slice(0, random.size(1, 500));
      choice.text = choice.text.slice(content.length);
      const choices = [{ index, delta: { content }, finish_reason: null }];
      if (!(await this.#event(peer, { ...MODEL, object, choices }))) return false;
      if (isBroken && random.chance(0.2)) return false;
      await sleep(this.#report.scheduler, random.exponential(50));
      if (choice.text !== "") continue;
      open.splice(open.indexOf(choice), 1);
      const last = [{ index, delta: {}, finish_reason: "stop" }];
      if (!(await this.#event(peer, { ...MODEL, object, choices: last }))) return false;
    }
    if (isBroken) return false;
    if (!(await this.#event(peer, { ...MODEL, object, choices: [], usage }))) return false;
    return (
      (await peer.write(Buffer.concat([chunk(Buffer.from("data: [DONE]\n\n")), chunk(Buffer.alloc(0))]))) === undefined
    );
  }

  async #event(peer: Peer, data: object): Promise<boolean> {
    return (await peer.write(chunk(Buffer.from(`data: ${JSON.stringify(data)}\n\n`)))) === undefined;
  }

  async #send(peer: Peer, head: string, body: string): Promise<boolean> {
    const length = Buffer.byteLength(body);
    return (
      (await peer.write(`${head}content-type: application/json\r\ncontent-length: ${length}\r\n\r\n${body}`)) ===
      undefined
    );
  }
}
