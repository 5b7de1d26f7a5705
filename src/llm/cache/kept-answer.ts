/**
 * An answer as the cache keeps it: what the client got, whole, and what it had cost. What is not whole, too large, or tells
 * of an error is not kept.
 */

import { z } from "zod";
import type { BackendCall, BackendProblem } from "../../core/backend.ts";
import type { HeaderList } from "../../http/headers.ts";
import { PassingCall } from "../calls/passing-call.ts";
import { isEncoded } from "../encoding/decode-response.ts";

/** As text in JSON it stays below what a store takes. */
const MAX_KEPT_BYTES = 512 * 1024;
/** What a piece takes besides its bytes. */
const CHUNK_BYTES = 128;
/** What an answer needs to be read again; the rest is of the provider's one call. */
const KEPT_HEADERS = ["content-type", "x-gateway-dropped"];
const ERROR_EVENT = /^(?:event: ?(?:error|response\.failed)|data: ?\{"(?:error|type": ?"error)")/m;

const schema = z.strictObject({
  headers: z.array(z.string()),
  body: z.string(),
  isBase64: z.boolean(),
  keptAtMs: z.number(),
  tokens: z.number(),
  cost: z.number(),
});

export type KeptAnswer = z.output<typeof schema>;

export function parseKept(text: string): KeptAnswer | undefined {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

export function bodyOf({ body, isBase64 }: KeptAnswer): Buffer {
  return Buffer.from(body, isBase64 ? "base64" : "utf8");
}

export interface Keep {
  /** Whether there is memory for that many more bytes. */
  hold(bytes: number): boolean;
  keep(answer: Pick<KeptAnswer, "headers" | "body" | "isBase64">): void;
}

/** Passes an answer on, and keeps a copy until its end. */
export class KeepingCall extends PassingCall {
  readonly #outcome: "miss" | "bypass";
  readonly #keep: Keep | undefined;
  #headers: string[] | undefined;
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** Without `keep`, only the head says what the cache did. */
  constructor(call: BackendCall, outcome: "miss" | "bypass", keep?: Keep) {
    super(call);
    this.#outcome = outcome;
    this.#keep = keep;
  }

  head(status: number, headers: HeaderList): void {
    if (this.#keep !== undefined && status === 200 && !isEncoded(headers.get("content-encoding")))
      this.#headers = KEPT_HEADERS.flatMap((name) => {
        const value = headers.get(name);
        return value === undefined ? [] : [name, value];
      });
    headers.set("x-gateway-cache", this.#outcome);
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    if (this.#headers !== undefined) {
      this.#bytes += chunk.length;
      if (this.#bytes <= MAX_KEPT_BYTES && this.#keep?.hold(chunk.length + CHUNK_BYTES) === true)
        this.#chunks.push(chunk);
      else this.#forget();
    }
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    const headers = this.#headers;
    if (headers !== undefined) {
      const bytes = Buffer.concat(this.#chunks);
      const text = bytes.toString("utf8");
      const isBase64 = !Buffer.from(text).equals(bytes);
      if (bytes.length > 0 && !ERROR_EVENT.test(text))
        this.#keep?.keep({ headers, body: isBase64 ? bytes.toString("base64") : text, isBase64 });
      this.#forget();
    }
    this.call.end(trailers);
  }

  override problem(problem: BackendProblem): void {
    this.#forget();
    this.call.problem(problem);
  }

  fail(error: unknown): void {
    this.#forget();
    this.call.fail(error);
  }

  #forget(): void {
    this.#headers = undefined;
    this.#chunks = [];
  }
}
