/**
 * Sends one client request as several provider calls and joins the responses in order. If a part fails, its error
 * replaces the joined response, and the other calls are aborted.
 */
import { decompressLater, isEncoded } from "../base/decompress.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { Exchange } from "../core/exchange.ts";
import { HeaderList } from "../http/headers.ts";
import {
  type HttpCall,
  HttpClientError,
  type HttpResponseReceiver,
  type OutgoingRequest,
} from "../http/http-client.ts";
import { readMembers } from "../json/read-json.ts";
import type { Candidate } from "./models/model-table.ts";
import { signedRequest, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";
import { estimateRequestTokens } from "./usage/estimate-tokens.ts";
import { readHeaderUsage } from "./usage/usage.ts";

const COUNT = peerInput("llm-provider/token-count");

const MAX_CALLS_AT_ONCE = 8;
/** Bounds all responses together, below the limit of one translated response. */
const MAX_RESPONSES_BYTES = 15 * 1024 * 1024;

export interface SplitCallHandler extends HttpResponseReceiver {
  partReceived(): void;
}

export class SplitCall implements HttpCall {
  readonly #exchange: Exchange;
  readonly #plan: UpstreamPlan;
  readonly #candidate: Candidate;
  readonly #signedFirst: OutgoingRequest;
  readonly #handler: SplitCallHandler;
  readonly #spent: (tokens: number) => void;
  readonly #count: number;
  readonly #open = new Set<Part>();
  readonly #responses: Buffer[] = [];
  #next = 0;
  #completed = 0;
  #bytes = 0;
  #tokens = 0;
  #areCounted = true;
  #firstHead: HeaderList | undefined = undefined;
  #failed: Part | undefined = undefined;
  #isReported = false;
  #isOver = false;

  /** `first` is the signed request of the first part. `spent` receives the tokens used if the request does not complete. */
  constructor(
    exchange: Exchange,
    plan: UpstreamPlan,
    candidate: Candidate,
    first: OutgoingRequest,
    handler: SplitCallHandler,
    spent: (tokens: number) => void,
  ) {
    this.#exchange = exchange;
    this.#plan = plan;
    this.#candidate = candidate;
    this.#signedFirst = first;
    this.#handler = handler;
    this.#spent = spent;
    this.#count = plan.more.length + 1;
    this.#fill();
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  abort(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#report();
    this.#close(undefined);
  }

  resume(): void {
    this.#failed?.http?.resume();
  }

  isOpen(part: Part): boolean {
    return !this.#isOver && this.#open.has(part);
  }

  partReceived(): void {
    if (!this.#isOver) this.#handler.partReceived();
  }

  respondedWithError(part: Part, status: number, headers: HeaderList): void {
    if (this.#isOver || this.#failed) return;
    this.#failed = part;
    this.#open.delete(part);
    this.#report();
    this.#close(part);
    this.#handler.head(status, headers);
  }

  reject(part: Part): void {
    if (this.#isOver || this.#failed) return;
    this.#report();
    part.http?.abort();
    this.respondedWithError(part, 400, HeaderList.of({ "content-type": "application/json" }));
    const message = "the answers to all parts of the request are too large together: send fewer at once";
    this.forward(Buffer.from(JSON.stringify({ message })));
    this.forwardEnd([]);
  }

  forward(chunk: Buffer): boolean {
    return this.#isOver || this.#handler.data(chunk);
  }

  forwardEnd(trailers: string[]): void {
    if (this.#isOver) return;
    this.#handler.end(trailers);
    this.#isOver = true;
  }

  failed(part: Part, error: HttpClientError): void {
    // A response may be decompressed after another part failed.
    if (this.#isOver || (this.#failed !== undefined && this.#failed !== part)) return;
    this.#isOver = true;
    this.#open.delete(part);
    this.#report();
    this.#close(part);
    this.#handler.fail(error);
  }

  /** Extrapolates the total size from the responses received so far. */
  exceedsLimit(bytes: number): boolean {
    return (this.#bytes + bytes) * this.#count > MAX_RESPONSES_BYTES * (this.#completed + 1);
  }

  completed(part: Part, headers: HeaderList, answer: Buffer): void {
    if (this.#isOver || this.#failed) return;
    this.#open.delete(part);
    const tokens = readHeaderUsage(headers)?.inputTokens ?? countedIn(answer, this.#plan);
    this.#tokens += tokens ?? this.#estimate(part.at);
    if (tokens === undefined) this.#areCounted = false;
    if (part.at === 0) this.#firstHead = headers;
    this.#responses[part.at] = answer;
    this.#bytes += answer.length;
    this.#completed += 1;
    if (this.#completed < this.#count) this.#fill();
    else this.#finish();
  }

  #fill(): void {
    while (!this.#isOver && this.#open.size < MAX_CALLS_AT_ONCE && this.#next < this.#count) {
      const part = new Part(this, this.#next++);
      this.#open.add(part);
      const request = this.#request(part.at);
      if (!(request instanceof Promise)) part.http = this.#candidate.target.upstream.send(request, part);
      else
        request
          .then((ready) => {
            if (!this.#isOver && this.#failed === undefined)
              part.http = this.#candidate.target.upstream.send(ready, part);
          })
          .catch((error: Error) => {
            if (this.#failed === undefined) this.failed(part, new HttpClientError("connect", error.message, error));
          });
    }
  }

  #body(at: number): readonly Buffer[] {
    return at === 0 ? this.#plan.body : (this.#plan.more[at - 1] ?? []);
  }

  #request(at: number): OutgoingRequest | Promise<OutgoingRequest> {
    if (at === 0) return this.#signedFirst;
    const { target } = this.#candidate;
    const body = this.#body(at);
    const request = upstreamRequest(this.#exchange, target, this.#plan.path, body, this.#plan.translatedTo);
    return target.sign?.(signedRequest(request, target, body))?.then(() => request) ?? request;
  }

  #estimate(at: number): number {
    return estimateRequestTokens(Buffer.concat(this.#body(at)));
  }

  #finish(): void {
    const headers = this.#firstHead;
    if (headers === undefined) return;
    for (const name of ["content-length", "content-encoding", "etag"]) headers.delete(name);
    headers.set("content-type", "application/json");
    if (this.#areCounted) headers.set(COUNT_HEADER, String(this.#tokens));
    else headers.delete(COUNT_HEADER);
    const pieces = this.#responses.flatMap((answer, at) => (at === 0 ? [answer] : [COMMA, answer]));
    this.#isReported = true;
    this.#handler.head(200, headers);
    if (!this.#isOver) this.#handler.data(Buffer.concat([BEGIN, ...pieces, END]));
    if (!this.#isOver) this.#handler.end([]);
    this.#isOver = true;
  }

  /** Reports spending at most once, with estimates for the parts in flight. */
  #report(): void {
    if (this.#isReported) return;
    this.#isReported = true;
    let tokens = this.#tokens;
    for (const { at, http } of this.#open) if (http !== undefined) tokens += this.#estimate(at);
    this.#spent(tokens);
  }

  #close(but: Part | undefined): void {
    if (but === undefined) this.#failed?.http?.abort();
    for (const part of this.#open) if (part !== but) part.http?.abort();
    this.#open.clear();
  }
}

const BEGIN = Buffer.from('{"parts":[');
const COMMA = Buffer.from(",");
const END = Buffer.from("]}");

const COMPRESSED = peerInput("llm-provider/compressed-response");

class Part implements HttpResponseReceiver {
  readonly at: number;
  http: HttpCall | undefined = undefined;
  readonly #whole: SplitCall;
  readonly #held: Buffer[] = [];
  #heldBytes = 0;
  #headers: HeaderList | undefined = undefined;

  constructor(whole: SplitCall, at: number) {
    this.#whole = whole;
    this.at = at;
  }

  head(status: number, headers: HeaderList): void {
    if (status >= 200 && status < 300) this.#headers = headers;
    else this.#whole.respondedWithError(this, status, headers);
  }

  data(chunk: Buffer): boolean {
    if (this.#headers === undefined) return this.#whole.forward(chunk);
    this.#whole.partReceived();
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#whole.exceedsLimit(this.#heldBytes)) this.#whole.reject(this);
    return true;
  }

  end(trailers: string[]): void {
    const headers = this.#headers;
    if (headers === undefined) {
      this.#whole.forwardEnd(trailers);
      return;
    }
    const encoding = headers.get("content-encoding");
    const raw = this.#held.length === 1 && this.#held[0] ? this.#held[0] : Buffer.concat(this.#held);
    if (!isEncoded(encoding)) this.#complete(headers, raw);
    else
      decompressLater(COMPRESSED, raw, encoding, (answer) => {
        if (this.#whole.isOpen(this)) this.#complete(headers, answer);
      });
  }

  #complete(headers: HeaderList, answer: Buffer | undefined): void {
    if (answer === undefined)
      this.#whole.failed(this, new HttpClientError("response", "the provider's response cannot be decoded"));
    else if (this.#whole.exceedsLimit(answer.length)) this.#whole.reject(this);
    else this.#whole.completed(this, headers, answer);
  }

  fail(error: HttpClientError): void {
    this.#whole.failed(this, error);
  }
}

/** Bedrock reports the input tokens of a call in this header. */
const COUNT_HEADER = "x-amzn-bedrock-input-token-count";

function countedIn(answer: Buffer, { translation }: UpstreamPlan): number | undefined {
  const members = translation?.counts && readMembers(COUNT, answer);
  return members && translation?.counts?.inputTokens(members);
}
