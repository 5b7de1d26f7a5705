/**
 * Compares a mirror's response with the backend's: status, content type, JSON shape, and time to the response head.
 */
import { decompress, isEncoded } from "../../base/decompress.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange, GatewayResponse } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import type { HeaderList } from "../../http/headers.ts";
import { readJson } from "../../json/read-json.ts";
import type { MirrorComparison, Mirrored } from "../../record/trace/live-records.ts";
import { shapeDifferences } from "./json-shape.ts";

const RESPONSE = peerInput("mirror/response");

const MAX_COMPARED_BYTES = 64 * 1024;
const COMPRESSED = peerInput("mirror/compressed-response");
/** Limits the total size of the bodies that this thread buffers. Shapes of further bodies are not compared. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;
/** A mirror counts as slower if both limits are exceeded. */
const SLOWER_FACTOR = 1.5;
const SLOWER_MS = 10;

let waitingBytes = 0;

export class ComparedResponse {
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
    if (!/[/+]json$/.test(this.#type)) this.release();
  }

  get type(): string {
    return this.#type;
  }

  add(chunk: Buffer): void {
    if (this.#chunks === undefined) return;
    this.#bytes += chunk.length;
    waitingBytes += chunk.length;
    if (this.#bytes > MAX_COMPARED_BYTES || waitingBytes > MAX_WAITING_BYTES) this.release();
    // A chunk may be a slice of a large buffer, so only a copy is kept.
    else this.#chunks.push(Buffer.from(chunk));
  }

  /**
   * Drops the buffered body. It must be called for every instance, because buffered bytes count toward
   * `MAX_WAITING_BYTES`.
   */
  release(): void {
    this.#chunks = undefined;
    waitingBytes -= this.#bytes;
    this.#bytes = 0;
  }

  /** Returns undefined if the body was dropped or cannot be parsed as JSON. */
  json(): { readonly value: unknown } | undefined {
    if (this.#chunks === undefined) return undefined;
    const raw = Buffer.concat(this.#chunks);
    const bytes = isEncoded(this.#encoding) ? decompress(COMPRESSED, raw, this.#encoding) : raw;
    if (bytes === undefined) return undefined;
    try {
      return { value: readJson(RESPONSE, bytes) };
    } catch {
      return undefined;
    }
  }
}

/** Represents one mirrored request. `ended` is its response or failure, and undefined while the request is pending. */
export interface MirroredCopy {
  readonly mirror: string;
  ended: ComparedResponse | { readonly failed: string; readonly tookMs: number } | undefined;
  onEnd: (() => void) | undefined;
}

class MirrorState implements Mirrored {
  readonly found: MirrorComparison[] = [];
  pending = 0;
  onLate: Mirrored["onLate"] = undefined;
  readonly copies: MirroredCopy[] = [];
  backend: ComparedResponse | undefined = undefined;
  isSettled = false;
}

export function expectCopy(exchange: Exchange, mirror: string): MirroredCopy {
  const state = getState(exchange) ?? new MirrorState();
  exchange.records.mirrored = state;
  const copy: MirroredCopy = { mirror, ended: undefined, onEnd: undefined };
  state.copies.push(copy);
  return copy;
}

/** This response hook buffers the backend's response for the comparison while it is sent to the client. */
export function watchBackend(exchange: Exchange): undefined {
  const state = getState(exchange);
  const { response, upstream } = exchange;
  if (state === undefined || state.backend !== undefined || response?.source !== "upstream") return;
  const compared = new ComparedResponse(
    response.status,
    response.headers,
    (upstream.headMs ?? 0) - (upstream.startedMs ?? upstream.headMs ?? 0),
  );
  state.backend = compared;
  if (response.body !== undefined) {
    compared.add(response.body);
    return;
  }
  response.observers = [...(response.observers ?? []), { data: (chunk) => compared.add(chunk), end: () => undefined }];
}

/** This settle hook compares all copies that have ended. Every other copy is compared when it ends. */
export function compareCopies(exchange: Exchange, { end }: Outcome): undefined {
  const state = getState(exchange);
  if (state === undefined || state.isSettled) return;
  state.isSettled = true;
  const { backend } = state;
  let waiting = state.copies.length;
  // No comparison is possible if the gateway produced the response or the backend's response was cut off.
  const hasNoBaseline = end !== "complete" || isReplaced(exchange.response);
  const compared = (copy: MirroredCopy): MirrorComparison | undefined => {
    const found = hasNoBaseline || backend === undefined ? undefined : compareResponses(backend, copy);
    if (copy.ended instanceof ComparedResponse) copy.ended.release();
    waiting -= 1;
    if (waiting === 0) backend?.release();
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
      details: { mirror: copy.mirror, reason: "the mirror has not responded yet; see the report" },
    });
  }
}

function getState({ records: { mirrored } }: Exchange): MirrorState | undefined {
  return mirrored instanceof MirrorState ? mirrored : undefined;
}

function isDifferent({ failed, status, shape }: MirrorComparison): boolean {
  return failed !== undefined || status !== undefined || shape !== undefined;
}

function isReplaced(response: GatewayResponse | undefined): boolean {
  return response === undefined || response.source !== "upstream" || response.replacement !== undefined;
}

function compareResponses(backend: ComparedResponse, { mirror, ended }: MirroredCopy): MirrorComparison {
  const times = { backendMs: backend.tookMs, mirrorMs: ended?.tookMs ?? 0 };
  if (!(ended instanceof ComparedResponse))
    return { mirror, failed: ended?.failed ?? "no response", hasShape: false, ...times, isSlower: false };
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
