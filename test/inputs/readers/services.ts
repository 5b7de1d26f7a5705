/** Hostile inputs of the readers of services: authorization, processing, guards, rate limits, mirrors, and agents. */
import { fromJSON, type ServiceDefinition } from "@grpc/proto-loader";
import { AgentCards, shownCard, skillsOf } from "../../../src/backends/a2a/agent-card.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { createGuardWebhook, createServiceGuard, openAiModeration } from "../../../src/llm/guards/guard-services.ts";
import {
  PROTOCOL as AUTHORIZATION,
  SERVICE_NAME as AUTHORIZER,
  type CheckResponse,
} from "../../../src/policies/ext-authz/check-protocol.ts";
import { parseVerdict } from "../../../src/policies/ext-authz/grpc-check.ts";
import { parseResult } from "../../../src/policies/mcp-guardrails/processor-client.ts";
import {
  SERVICE_NAME as GUARDRAIL,
  PROTOCOL as GUARDRAILS,
  type WireResult,
} from "../../../src/policies/mcp-guardrails/protocol.ts";
import { parseServiceResponse } from "../../../src/policies/rate-limit/global-limit.ts";
import {
  SERVICE_NAME as LIMITER,
  PROTOCOL as LIMITS,
  type RlsResponse,
} from "../../../src/policies/rate-limit/rls-client.ts";
import { ComparedResponse } from "../../../src/policies/request-mirror/compare-responses.ts";
import { readChanges, readImmediate } from "../../../src/policy-parts/ext-proc/changes.ts";
import {
  PROTOCOL as PROCESSING,
  SERVICE_NAME as PROCESSOR,
  type ProcessingResponse,
} from "../../../src/policy-parts/ext-proc/protocol.ts";
import { applyHeaders } from "../../../src/policy-parts/service-headers.ts";
import { fakeClock } from "../../support/fake-clock.ts";
import { fetched } from "../fetched.ts";
import { type HostileInputs, hostile, inPieces, many, mapShapes } from "../hostile.ts";
import { COMPRESSIONS, compressedShapes, jsonShapes } from "../shapes.ts";

type Protocol = Parameters<typeof fromJSON>[0];

/** Decodes as `openGrpcClient` does. */
function decoder<Message>(protocol: Protocol, service: string, method: string): (bytes: Buffer) => Message {
  const definition = fromJSON(protocol, { keepCase: true, longs: Number, defaults: true, arrays: true });
  const found = (definition[service] as ServiceDefinition)[method];
  if (found === undefined) throw new Error(`${service} has no method ${method}`);
  return found.responseDeserialize as unknown as (bytes: Buffer) => Message;
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return Buffer.from([...bytes, rest]);
}

/** A field with a length: a text, bytes, or a message. */
function field(id: number, content: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  return Buffer.concat([varint(id * 8 + 2), varint(bytes.length), bytes]);
}

const times = (n: number, make: (i: number) => Buffer): Buffer => {
  const items: Buffer[] = [];
  for (let size = 0; size < n; size += items.at(-1)?.length ?? n) items.push(make(items.length));
  return Buffer.concat(items);
};

/** Shapes of a message that has a list of headers at some place. */
function headerShapes(inside: (headers: Buffer) => Buffer, option: (key: string, value: string) => Buffer) {
  return {
    "many headers": (n: number) => inside(times(n, (i) => option(`x-${i}`, "1"))),
    "equal headers": (n: number) => inside(times(n, () => option("x-a", "1"))),
    "one large value": (n: number) => inside(option("x-a", "v".repeat(n))),
    "one large name": (n: number) => inside(option("x".repeat(n), "v")),
    "empty headers": (n: number) => inside(times(n, () => field(1, ""))),
    "unknown fields": (n: number) => Buffer.concat([inside(option("x", "1")), times(n, (i) => field(100 + i, "x"))]),
    "equal messages": (n: number) => times(n, () => inside(option("x-a", "1"))),
    "never completed": (n: number) => inside(times(n, (i) => option(`x-${i}`, "1"))).subarray(0, -1),
    "deep groups": (n: number) => Buffer.alloc(n, 0xbb),
    "large numbers": (n: number) => times(n, () => Buffer.from([0x08, 0xff, 0xff, 0xff, 0xff, 0x0f])),
    "invalid at the end": (n: number) =>
      Buffer.concat([inside(times(n, (i) => option(`x-${i}`, "1"))), Buffer.from([7])]),
  };
}

const header = (key: string, value: string): Buffer => Buffer.concat([field(1, key), field(2, value)]);
const OK = field(1, Buffer.from([8, 0]));

const check = decoder<CheckResponse>(AUTHORIZATION, AUTHORIZER, "Check");
const limit = decoder<RlsResponse>(LIMITS, LIMITER, "ShouldRateLimit");
const processed = decoder<ProcessingResponse>(PROCESSING, PROCESSOR, "Process");
const guarded = decoder<WireResult>(GUARDRAILS, GUARDRAIL, Object.keys(fromJSON(GUARDRAILS)[GUARDRAIL] ?? {})[0] ?? "");

const processing = hostile<Buffer>({
  shapes: {
    // The changes of a body: response, common response, header mutation, list of headers.
    ...headerShapes(
      (headers) => field(3, field(1, field(2, headers))),
      (key, value) => field(1, field(1, header(key, value))),
    ),
    "one large body": (n) => field(3, field(1, field(3, field(1, Buffer.alloc(n, 1))))),
    "immediate response": (n) => field(7, field(3, "x".repeat(n))),
  },
  read(bytes) {
    const { requestBody, immediateResponse } = processed(bytes);
    if (immediateResponse !== undefined) return readImmediate(immediateResponse).status;
    const changes = readChanges(requestBody?.response ?? null, "requestBody");
    applyHeaders(new HeaderList(["x-a", "1"]), changes.set);
    return changes.set.length;
  },
});

const mirrored = (bytes: Buffer, pieceBytes: number, encoding: string): unknown => {
  const headers = new HeaderList(["content-type", "application/json", "content-encoding", encoding]);
  const response = new ComparedResponse(200, headers, 1);
  for (const piece of inPieces(bytes, pieceBytes)) response.add(piece);
  const found = response.json();
  response.release();
  return found !== undefined;
};

const clock = fakeClock();
const REJECTION = { status: 403, message: "no" };
const INPUT = { direction: "request", model: "m", texts: ["a"] } as const;
const failed = (reason: string): void => {
  throw new Error(reason);
};

export const serviceInputs = {
  "ext-authz/grpc-response": hostile<Buffer>({
    shapes: {
      ...headerShapes(
        (headers) => Buffer.concat([OK, field(3, headers)]),
        (key, value) => field(1, field(1, header(key, value))),
      ),
      "removed headers": (n) =>
        Buffer.concat([
          OK,
          field(
            3,
            times(n, (i) => field(5, `x-${i}`)),
          ),
        ]),
      "one large body": (n) => Buffer.concat([field(1, Buffer.from([8, 7])), field(2, field(3, "x".repeat(n)))]),
    },
    read(bytes) {
      const verdict = parseVerdict(check(bytes));
      if (verdict.allowed) applyHeaders(new HeaderList(["x-a", "1"]), verdict.set);
      return verdict.allowed;
    },
  }),
  "rate-limit-service/response": hostile<Buffer>({
    shapes: {
      ...headerShapes(
        (headers) => headers,
        (key, value) => field(3, header(key, value)),
      ),
      "many statuses": (n) => times(n, () => field(2, Buffer.from([8, 1]))),
      "one large body": (n) => field(5, Buffer.alloc(n, 120)),
    },
    read: (bytes) => Object.keys(parseServiceResponse(limit(bytes)).responseHeaders).length,
  }),
  "ext-proc/message": processing,
  "endpoint-picker/message": processing,
  "mcp-guardrails/message": hostile<Buffer>({
    shapes: {
      ...headerShapes(
        (headers) => Buffer.concat([field(1, ""), field(4, headers)]),
        (key, value) => field(1, header(key, value)),
      ),
      "metadata with many names": (n) =>
        Buffer.concat([
          field(1, ""),
          field(
            5,
            times(n, (i) => field(1, Buffer.concat([field(1, `a${i}`), field(2, field(3, "x"))]))),
          ),
        ]),
    },
    read: (bytes) => parseResult(guarded(bytes)).kind,
  }),
  "mcp-guardrails/change": hostile<string>({
    shapes: jsonShapes((value) => `{"arguments":${value}}`),
    read: (text) => parseResult({ mutated: Buffer.from(text) }).kind,
  }),
  "guard-service/verdict": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"results":[{"flagged":false,"x":${value}}]}`),
      "many results": (n) => `{"results":[${many(n, () => '{"flagged":false}', ",")}]}`,
    },
    async read(text) {
      const service = openAiModeration({ baseUrl: "https://guard.example/v1", model: "m" });
      const settings = {
        timeoutMs: 1,
        failureMode: "closed",
        rejection: REJECTION,
        authorize: () => undefined,
      } as const;
      return (await createServiceGuard(service, settings, { fetch: fetched(text), failed }).check(INPUT)).length;
    },
  }),
  "guard-service/webhook-verdict": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"action":"pass","x":${value}}`),
      "many texts": (n) => `{"action":"mask","texts":[${many(n, () => '"a"', ",")}]}`,
      "one large text": (n) => `{"action":"mask","texts":["${"a".repeat(n)}"]}`,
    },
    read: async (text) =>
      (
        await createGuardWebhook(
          { url: "https://guard.example/", headers: {}, timeoutMs: 1, failureMode: "closed", rejection: REJECTION },
          fetched(text),
          failed,
        ).check(INPUT)
      ).length,
  }),
  "a2a-agent/card": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"name":"a","url":"https://a.example/","x":${value}}`),
      "many skills": (n) => `{"skills":[${many(n, (i) => `{"id":"s${i}"}`, ",")}]}`,
      "many interfaces": (n) => `{"additionalInterfaces":[${many(n, () => '{"transport":"JSONRPC"}', ",")}]}`,
    },
    async read(text) {
      const card = await new AgentCards("https://a.example/", undefined, fetched(text), clock).get();
      return JSON.stringify(shownCard(card, "https://g.example/")).length + skillsOf(card).length;
    },
  }),
  "mirror/response": hostile<Buffer>({
    shapes: mapShapes(jsonShapes(), (text) => Buffer.from(text)),
    read: (bytes, pieceBytes) => mirrored(bytes, pieceBytes, "identity"),
    pieces: [11, 1_400],
  }),
  "mirror/compressed-response": hostile<Buffer>({
    shapes: compressedShapes((n) => `[${many(n, () => "1", ",")}]`, COMPRESSIONS.gzip),
    read: (bytes, pieceBytes) => mirrored(bytes, pieceBytes, "gzip"),
    pieces: [11, 1_400],
  }),
} satisfies HostileInputs;
