/**
 * Encodes spans as OTLP protobuf (opentelemetry/proto/trace/v1). A span is encoded when its request ends, so that a
 * waiting span is one buffer and not a tree of objects that the garbage collector copies.
 */
import type { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";

export type Attributes = Parameters<(typeof ProtobufTraceSerializer)["serializeRequest"]>[0][number]["attributes"];

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly tracestate: string | undefined;
  readonly parentId: string | undefined;
  /** True if the parent is a span of the client. */
  readonly isParentRemote: boolean;
  readonly name: string;
  readonly kind: SpanKind;
  readonly startEpochMs: number;
  readonly endEpochMs: number;
  readonly attributes: Attributes;
  readonly droppedAttributes: number;
  /** The value is undefined if the operation succeeded. */
  readonly error: string | undefined;
}

export const SPAN_KIND = { internal: 1, server: 2, client: 3 } as const;
type SpanKind = (typeof SPAN_KIND)[keyof typeof SPAN_KIND];

const STATUS_ERROR = 2;
const FLAGS = { sampled: 0x1, hasIsRemote: 0x100, isRemote: 0x200 } as const;

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;
/** The longest varint has 10 bytes. */
const LONGEST_VARINT = 10;
/** A UTF-16 code unit has at most 3 bytes in UTF-8. */
const UTF8_BYTES_PER_UNIT = 3;
const ONE_BYTE_LENGTH = 0x80;
const TWO_TO_32 = 0x1_0000_0000;
const TWO_TO_63 = 2 ** 63;

/** Returns one element of the field `spans` of a `ScopeSpans` message. */
export function encodeSpan(span: Span): Buffer {
  const { parentId, tracestate, attributes, error } = span;
  writer.reset();
  writer.tag(2, BYTES);
  const start = writer.open();
  writer.hex(1, span.traceId, TRACE_ID_BYTES);
  writer.hex(2, span.spanId, SPAN_ID_BYTES);
  if (tracestate !== undefined && tracestate !== "") writer.text(3, tracestate);
  if (parentId !== undefined) writer.hex(4, parentId, SPAN_ID_BYTES);
  writer.text(5, span.name);
  writer.number(6, span.kind);
  writer.nanos(7, span.startEpochMs);
  writer.nanos(8, span.endEpochMs);
  writer.attributes(9, attributes);
  writer.number(10, span.droppedAttributes);
  // Spans have no events and no links, so their counts of dropped ones are 0.
  writer.number(12, 0);
  writer.number(14, 0);
  writer.tag(15, BYTES);
  const status = writer.open();
  if (error !== undefined && error !== "") writer.text(2, error);
  writer.number(3, error === undefined ? 0 : STATUS_ERROR);
  writer.close(status);
  writer.tag(16, FIXED32);
  writer.fixed32(FLAGS.sampled | FLAGS.hasIsRemote | (span.isParentRemote ? FLAGS.isRemote : 0));
  writer.close(start);
  return writer.copy();
}

/** Returns a function that builds an `ExportTraceServiceRequest` from encoded spans. */
export function createTraceRequests(resource: Attributes, scope: string): (spans: readonly Buffer[]) => Buffer {
  const resourceBytes = message(1, () => {
    writer.attributes(1, resource);
    writer.number(2, 0);
  });
  const scopeBytes = message(1, () => writer.text(1, scope));
  return (spans) => {
    let scopeLength = scopeBytes.length;
    for (const { length } of spans) scopeLength += length;
    const scopeHead = fieldHead(2, scopeLength);
    const requestHead = fieldHead(1, resourceBytes.length + scopeHead.length + scopeLength);
    return Buffer.concat([requestHead, resourceBytes, scopeHead, scopeBytes, ...spans]);
  };
}

function message(field: number, write: () => void): Buffer {
  writer.reset();
  writer.tag(field, BYTES);
  const start = writer.open();
  write();
  writer.close(start);
  return writer.copy();
}

function fieldHead(field: number, length: number): Buffer {
  writer.reset();
  writer.tag(field, BYTES);
  writer.varint(length);
  return writer.copy();
}

class ProtobufWriter {
  #bytes = Buffer.allocUnsafe(4096);
  #at = 0;

  reset(): void {
    this.#at = 0;
  }

  copy(): Buffer {
    return Buffer.from(this.#bytes.subarray(0, this.#at));
  }

  tag(field: number, wireType: number): void {
    this.varint((field << 3) | wireType);
  }

  /** Starts a message whose length is written by `close`. */
  open(): number {
    this.#reserve(LONGEST_VARINT);
    this.#at += 1;
    return this.#at;
  }

  close(start: number): void {
    const length = this.#at - start;
    if (length < ONE_BYTE_LENGTH) {
      this.#bytes[start - 1] = length;
      return;
    }
    // Most messages need one byte for their length. The others are moved.
    const size = length < ONE_BYTE_LENGTH ** 2 ? 2 : length < ONE_BYTE_LENGTH ** 3 ? 3 : 4;
    this.#reserve(LONGEST_VARINT);
    this.#bytes.copyWithin(start - 1 + size, start, this.#at);
    this.#at = start - 1;
    this.varint(length);
    this.#at += length;
  }

  varint(value: number): void {
    this.#reserve(LONGEST_VARINT);
    let rest = value;
    while (rest >= TWO_TO_32) {
      const low = rest % ONE_BYTE_LENGTH;
      this.#bytes[this.#at++] = low | 0x80;
      rest = (rest - low) / ONE_BYTE_LENGTH;
    }
    while (rest > 0x7f) {
      this.#bytes[this.#at++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.#bytes[this.#at++] = rest;
  }

  number(field: number, value: number): void {
    this.tag(field, VARINT);
    this.varint(value);
  }

  hex(field: number, text: string, bytes: number): void {
    this.tag(field, BYTES);
    this.varint(bytes);
    this.#reserve(bytes);
    this.#at += this.#bytes.write(text, this.#at, bytes, "hex");
  }

  text(field: number, text: string): void {
    this.tag(field, BYTES);
    const { length } = text;
    this.#reserve(LONGEST_VARINT + UTF8_BYTES_PER_UNIT * length);
    const start = this.#at + 1;
    const bytes = this.#bytes;
    if (length < ONE_BYTE_LENGTH) {
      let i = 0;
      for (; i < length; i++) {
        const code = text.charCodeAt(i);
        if (code >= 0x80) break;
        bytes[start + i] = code;
      }
      if (i === length) {
        bytes[start - 1] = length;
        this.#at = start + length;
        return;
      }
    }
    this.#at = start;
    this.#at += bytes.write(text, start, "utf8");
    this.close(start);
  }

  attributes(field: number, attributes: Attributes): void {
    for (const name in attributes) {
      const value = attributes[name];
      this.tag(field, BYTES);
      const start = this.open();
      this.text(1, name);
      this.tag(2, BYTES);
      this.#anyValue(value);
      this.close(start);
    }
  }

  /** A value of another type is written as an empty `AnyValue`. */
  #anyValue(value: unknown): void {
    const start = this.open();
    if (typeof value === "string") this.text(1, value);
    else if (typeof value === "boolean") this.number(2, value ? 1 : 0);
    else if (typeof value === "number") this.#anyNumber(value);
    else if (Array.isArray(value)) {
      this.tag(5, BYTES);
      const list = this.open();
      for (const item of value) {
        this.tag(1, BYTES);
        this.#anyValue(item);
      }
      this.close(list);
    }
    this.close(start);
  }

  #anyNumber(value: number): void {
    if (Number.isInteger(value) && value >= 0 && value < TWO_TO_63) {
      this.number(3, value);
      return;
    }
    const isInteger = Number.isInteger(value) && value < 0 && value >= -TWO_TO_63;
    this.tag(isInteger ? 3 : 4, isInteger ? VARINT : FIXED64);
    this.#reserve(LONGEST_VARINT);
    if (!isInteger) {
      this.#at = this.#bytes.writeDoubleLE(value, this.#at);
      return;
    }
    // Negative numbers are written as 64-bit two's complement, which always has 10 bytes.
    for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
      const isLast = rest < 0x80n;
      this.#bytes[this.#at++] = Number(rest & 0x7fn) | (isLast ? 0 : 0x80);
      if (isLast) return;
    }
  }

  fixed32(value: number): void {
    this.#reserve(LONGEST_VARINT);
    this.#at = this.#bytes.writeUInt32LE(value, this.#at);
  }

  /** Nanoseconds since 1970 exceed the safe integers, so the product is computed in two parts. */
  nanos(field: number, epochMs: number): void {
    this.tag(field, FIXED64);
    const seconds = Math.floor(epochMs / 1000);
    const nanos = Math.round((epochMs - seconds * 1000) * 1e6);
    const upper = Math.floor(seconds / 0x1_0000) * 1e9;
    const low = (seconds % 0x1_0000) * 1e9 + nanos + (upper % 0x1_0000) * 0x1_0000;
    this.fixed32(low % TWO_TO_32);
    this.fixed32(Math.floor(upper / 0x1_0000) + Math.floor(low / TWO_TO_32));
  }

  #reserve(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(2 * (this.#at + more));
    this.#bytes.copy(grown, 0, 0, this.#at);
    this.#bytes = grown;
  }
}

/** A span is encoded in one step, so all of them can share the writer. */
const writer = new ProtobufWriter();
