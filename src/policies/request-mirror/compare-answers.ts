/**
 * Compares the mirror's answer with the backend's own: status, shape of JSON, time to the head. Of each body the first
 * bytes are kept until both are there; a larger one is compared by status and type alone.
 */
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import type { Exchange, GatewayResponse } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { MirrorComparison, Mirrored } from "../../observe/trace/mirror-comparison.ts";
import { shapeDifferences } from "./json-shape.ts";

/** Bodies of which all is kept for the comparison. */
const MAX_COMPARED_BYTES = 64 * 1024;
const MAX_DECODED_BYTES = 256 * 1024;
/** All bodies that wait for their counterpart; what comes beyond is compared by status and type alone. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;
/** A mirror is slower if it takes half as long again, and so much more that it is not chance. */
const SLOWER_FACTOR = 1.5;
const SLOWER_MS = 10;

let waitingBytes = 0;

export class ComparedAnswer {
  readonly status: number;
  readonly tookMs: number;
  readonly #type: string;
  readonly #encoding: string;
  #chunks: Buffer[] | undefined = [];
  #bytes = 0;

  constructor(status: number, headers: HeaderList, tookMs: number) {
    this.status = status;
    this.tookMs = tookMs;
    this.#type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
    this.#encoding = headers.get("content-encoding") ?? "identity";
    if (!/[/+]json$/.test(this.#type)) this.forget();
  }

  get type(): string {
    return this.#type;
  }

  add(chunk: Buffer): void {
    if (this.#chunks === undefined) return;
    this.#bytes += chunk.length;
    waitingBytes += chunk.length;
    if (this.#bytes > MAX_COMPARED_BYTES || waitingBytes > MAX_WAITING_BYTES) this.forget();
    // A copy: a chunk may be a small part of a large buffer.
    else this.#chunks.push(Buffer.from(chunk));
  }

  /** Of each that is made, in the end. */
  forget(): void {
    this.#chunks = undefined;
    waitingBytes -= this.#bytes;
    this.#bytes = 0;
  }

  /** Undefined if it is not known, or no JSON. */
  json(): { readonly value: unknown } | undefined {
    if (this.#chunks === undefined) return undefined;
    try {
      return { value: JSON.parse(decoded(Buffer.concat(this.#chunks), this.#encoding).toString("utf8")) };
    } catch {
      return undefined;
    }
  }
}

/** One copy: its answer, why there is none, or neither yet. */
export interface MirroredCopy {
  readonly mirror: string;
  ended: ComparedAnswer | { readonly failed: string; readonly tookMs: number } | undefined;
  onEnd: (() => void) | undefined;
}

class Comparing implements Mirrored {
  readonly found: MirrorComparison[] = [];
  pending = 0;
  onLate: Mirrored["onLate"] = undefined;
  readonly copies: MirroredCopy[] = [];
  backend: ComparedAnswer | undefined = undefined;
  isSettled = false;
}

/** A copy of this request is on its way. */
export function expectCopy(exchange: Exchange, mirror: string): MirroredCopy {
  const state = stateOf(exchange) ?? new Comparing();
  exchange.records.mirrored = state;
  const copy: MirroredCopy = { mirror, ended: undefined, onEnd: undefined };
  state.copies.push(copy);
  return copy;
}

/** The backend answers: what it says is kept while it goes out. */
export function watchBackend(exchange: Exchange): undefined {
  const state = stateOf(exchange);
  const { response, upstream } = exchange;
  if (state === undefined || state.backend !== undefined || response?.source !== "upstream") return;
  const answer = new ComparedAnswer(
    response.status,
    response.headers,
    (upstream.headMs ?? 0) - (upstream.startedMs ?? upstream.headMs ?? 0),
  );
  state.backend = answer;
  if (response.body !== undefined) {
    answer.add(response.body);
    return;
  }
  response.observers = [...(response.observers ?? []), { data: (chunk) => answer.add(chunk), end: () => undefined }];
}

/** The request has ended: copies that have an answer are compared now, the others when they have one. */
export function compareCopies(exchange: Exchange, { end }: Outcome): undefined {
  const state = stateOf(exchange);
  if (state === undefined || state.isSettled) return;
  state.isSettled = true;
  const { backend } = state;
  let waiting = state.copies.length;
  // Nothing to compare with: the gateway answered itself, or the answer broke off.
  const isVain = end !== "complete" || isReplaced(exchange.response);
  const compared = (copy: MirroredCopy): MirrorComparison | undefined => {
    const found = isVain || backend === undefined ? undefined : comparisonOf(backend, copy);
    if (copy.ended instanceof ComparedAnswer) copy.ended.forget();
    waiting -= 1;
    if (waiting === 0) backend?.forget();
    return found;
  };
  for (const copy of state.copies) {
    if (copy.ended !== undefined) {
      const found = compared(copy);
      if (found === undefined) continue;
      state.found.push(found);
      exchange.trace?.point(
        { type: "policyEvent", kind: "mirrorCompared", details: { ...found } },
        isDifferent(found) ? "warn" : "info",
      );
      continue;
    }
    state.pending += 1;
    copy.onEnd = () => {
      state.pending -= 1;
      const found = compared(copy);
      if (found) state.onLate?.(found);
    };
    exchange.trace?.point({
      type: "policyEvent",
      kind: "mirrorPending",
      details: { mirror: copy.mirror, reason: "the mirror has not answered yet; see the report" },
    });
  }
}

function stateOf({ records: { mirrored } }: Exchange): Comparing | undefined {
  return mirrored instanceof Comparing ? mirrored : undefined;
}

function isDifferent({ failed, status, shape }: MirrorComparison): boolean {
  return failed !== undefined || status !== undefined || shape !== undefined;
}

function isReplaced(response: GatewayResponse | undefined): boolean {
  return response === undefined || response.source !== "upstream" || response.replacement !== undefined;
}

function comparisonOf(backend: ComparedAnswer, { mirror, ended }: MirroredCopy): MirrorComparison {
  const times = { backendMs: backend.tookMs, mirrorMs: ended?.tookMs ?? 0 };
  if (!(ended instanceof ComparedAnswer))
    return { mirror, failed: ended?.failed ?? "no answer", hasShape: false, ...times, isSlower: false };
  const isSlower = ended.tookMs > backend.tookMs * SLOWER_FACTOR && ended.tookMs - backend.tookMs > SLOWER_MS;
  const status = backend.status === ended.status ? {} : { status: `status ${backend.status} → ${ended.status}` };
  if (backend.type !== ended.type) {
    const shape = [`content-type: ${backend.type || "none"} → ${ended.type || "none"}`];
    return { mirror, ...status, shape, hasShape: true, ...times, isSlower };
  }
  const [before, after] = [backend.json(), ended.json()];
  const hasShape = before !== undefined && after !== undefined;
  const shape = hasShape ? shapeDifferences(before.value, after.value) : [];
  return { mirror, ...status, ...(shape.length > 0 ? { shape } : {}), hasShape, ...times, isSlower };
}

/** Throws if it is none that is known here, or if it is too large. */
function decoded(bytes: Buffer, encoding: string): Buffer {
  const options = { maxOutputLength: MAX_DECODED_BYTES };
  if (encoding === "identity") return bytes;
  if (encoding === "gzip") return gunzipSync(bytes, options);
  if (encoding === "br") return brotliDecompressSync(bytes, options);
  throw new Error(`unknown coding ${encoding}`);
}
