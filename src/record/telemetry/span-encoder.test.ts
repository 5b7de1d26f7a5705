/** Compares the encoder with the official serializer, byte by byte, over generated spans. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import { randomFrom } from "../../../test/support/random.ts";
import { createResource, hrTime, SCOPE } from "./otlp-export.ts";
import { type Attributes, createTraceRequests, encodeSpan, SPAN_KIND, type Span } from "./span-encoder.ts";

const random = randomFrom(20_261_118);
const below = (count: number): number => Math.floor(random() * count);
const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
const hex = (bytes: number): string => Array.from({ length: bytes * 2 }, () => below(16).toString(16)).join("");

const LENGTHS = [0, 1, 5, 20, 126, 127, 128, 129, 500, 16_383, 16_384, 20_000];
const CHARACTERS = ["a", " ", "\0", "\x7f", "\x80", "é", "ÿ", "Ā", "€", "\uffff", "🎉", "\ud800", "\udc00"];
const NUMBERS = [
  ...[0, 1, 127, 128, 200, 16_384, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1, 2 ** 53, 2 ** 62],
  ...[-0, -1, -128, -(2 ** 31), -(2 ** 32), 2 - 2 ** 53, -(2 ** 63), 2 ** 63, 2 ** 64, -(2 ** 64)],
  ...[0.5, -0.25, 1e-9, 1e300, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
];

function text(): string {
  const length = random() < 0.9 ? pick(LENGTHS.slice(0, 9)) : pick(LENGTHS);
  const alphabet = random() < 0.5 ? ["a", "b", "/", "."] : CHARACTERS;
  return Array.from({ length }, () => pick(alphabet)).join("");
}

function value(): Attributes[string] {
  const kind = below(5);
  if (kind === 0) return pick(NUMBERS);
  if (kind === 1) return random() < 0.5;
  if (kind === 2) return Array.from({ length: below(4) }, text);
  return kind === 3 ? Array.from({ length: below(200) }, () => below(1000)) : text();
}

function attributes(): Attributes {
  return Object.fromEntries(Array.from({ length: below(20) }, (_, i) => [`${text()}${i}`, value()]));
}

function span(): Span {
  const startEpochMs = pick([0, 1.5, 1_731_900_000_000, 1_763_443_200_123.456, 4_102_444_800_000 + random() * 1e9]);
  return {
    traceId: hex(16),
    spanId: hex(8),
    tracestate: pick([undefined, "", text()]),
    parentId: random() < 0.5 ? undefined : hex(8),
    isParentRemote: random() < 0.5,
    name: text(),
    kind: pick(Object.values(SPAN_KIND)),
    startEpochMs,
    endEpochMs: startEpochMs + random() * 10 ** below(8),
    attributes: attributes(),
    droppedAttributes: pick([0, 1, 300]),
    error: pick([undefined, "", text()]),
  };
}

type Official = Parameters<typeof ProtobufTraceSerializer.serializeRequest>[0][number];

function official(span: Span, resource: Official["resource"]): Official {
  const { traceId, spanId, tracestate, parentId, error } = span;
  const context = {
    traceId,
    spanId,
    traceFlags: 1,
    ...(tracestate === undefined ? {} : { traceState: { serialize: () => tracestate } }),
  };
  return {
    name: span.name,
    kind: span.kind - 1,
    spanContext: () => context,
    startTime: hrTime(span.startEpochMs),
    endTime: hrTime(span.endEpochMs),
    status: error === undefined ? { code: 0 } : { code: 2, message: error },
    attributes: span.attributes,
    links: [],
    events: [],
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: span.droppedAttributes,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
    parentSpanContext:
      parentId === undefined ? undefined : { traceId, spanId: parentId, traceFlags: 1, isRemote: span.isParentRemote },
  } as unknown as Official;
}

test("encoded spans are those of the official serializer", () => {
  for (let round = 0; round < 100; round++) {
    const resource = createResource({ "service.name": "gateway", [text()]: text() });
    const spans = Array.from({ length: 1 + below(4) }, span).map((one) =>
      one.parentId === undefined ? { ...one, isParentRemote: false } : one,
    );
    const expected = ProtobufTraceSerializer.serializeRequest(spans.map((one) => official(one, resource)));
    const encoded = createTraceRequests(resource.attributes, SCOPE.name)(spans.map(encodeSpan));
    assert.ok(
      Buffer.from(expected ?? []).equals(encoded),
      `round ${round} differs: ${JSON.stringify(spans).slice(0, 2000)}`,
    );
  }
});

test("an encoded span keeps its bytes when later ones are encoded", () => {
  const first = encodeSpan(span());
  const before = Buffer.from(first);
  for (let i = 0; i < 50; i++) encodeSpan(span());
  assert.deepEqual(first, before);
});
