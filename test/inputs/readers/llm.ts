/** Hostile inputs of the readers of LLM requests and responses. */

import { crc32 } from "node:zlib";
import { decompress } from "../../../src/base/decompress.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { createSseParser } from "../../../src/http/sse.ts";
import { isMembers, type Members } from "../../../src/json/json.ts";
import { readMembersInSteps, stringifyInSteps } from "../../../src/json/parse-in-steps.ts";
import { readMembers } from "../../../src/json/read-json.ts";
import { skeletonSteps } from "../../../src/json/skeleton.ts";
import { parseArguments } from "../../../src/llm/dialects/conversation.ts";
import { translationBetween } from "../../../src/llm/dialects/translate.ts";
import { createStreamGuard } from "../../../src/llm/guards/stream-guard.ts";
import { compileTextGuard } from "../../../src/llm/guards/text-guard.ts";
import { BodyTexts } from "../../../src/llm/guards/text-places.ts";
import { hasManyObjects } from "../../../src/llm/provider-response.ts";
import type { Format } from "../../../src/llm/request/dialect.ts";
import { clientError } from "../../../src/llm/request/llm-errors.ts";
import { readingSteps, scanForm } from "../../../src/llm/request/read-request.ts";
import { estimateSteps, maxOutputTokensSteps } from "../../../src/llm/usage/estimate-tokens.ts";
import { createUsageHider } from "../../../src/llm/usage/hide-usage.ts";
import { createContentReader } from "../../../src/llm/usage/response-content.ts";
import { createUsageReader } from "../../../src/llm/usage/response-usage.ts";
import {
  createEventStreamReader,
  parseEvent,
  parseEventInSteps,
  usageEventAt,
} from "../../../src/llm/usage/stream-events.ts";
import { promptMessages } from "../../../src/record/recorded-bodies.ts";
import { context } from "../../support/llm/translate.ts";
import { type HostileInputs, hostile, inPieces, many, mapShapes, STREAM_PIECES, together } from "../hostile.ts";
import { COMPRESSIONS, compressedShapes, jsonShapes, sseShapes } from "../shapes.ts";
import { endTurn, finishInTurns } from "../turns.ts";

const COMPRESSED = peerInput("llm-provider/compressed-response");
const CLIENTS: readonly Format[] = ["chat", "messages", "responses", "generateContent"];
const PROVIDERS: readonly Format[] = ["chat", "messages", "generateContent", "converse"];

const inMessages = (value: string): string => `{"model":"m","messages":[{"role":"user","content":${value}}]}`;
const requests = {
  ...jsonShapes(inMessages),
  "many messages": (n: number) => `{"model":"m","messages":[${many(n, () => '{"role":"user","content":"a"}', ",")}]}`,
  "many tools": (n: number) =>
    `{"model":"m","messages":[],"tools":[${many(n, (i) => `{"type":"function","function":{"name":"f${i}"}}`, ",")}]}`,
  "many tool calls": (n: number) =>
    `{"model":"m","messages":[{"role":"assistant","tool_calls":[${many(n, (i) => `{"id":"c${i}","type":"function","function":{"name":"f","arguments":"{}"}}`, ",")}]}]}`,
  "many results": (n: number) =>
    `{"model":"m","messages":[${many(n, (i) => `{"role":"tool","tool_call_id":"c${i}","content":"a"}`, ",")}]}`,
  "many models": (n: number) => `{${many(n, () => '"model":"m"', ",")}}`,
  "many members": (n: number) => `{"model":"m",${many(n, (i) => `"x${i}":1`, ",")},"messages":[]}`,
};

/** Tool calls as each dialect streams them. */
const startedCalls: Readonly<Record<string, (i: number) => string>> = {
  chat: (i) =>
    `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":${i},"id":"c${i}","function":{"name":"f","arguments":"{"}}]}}]}`,
  messages: (i) =>
    `{"type":"content_block_start","index":${i},"content_block":{"type":"tool_use","id":"c${i}","name":"f"}}`,
  generateContent: () => '{"candidates":[{"index":0,"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]}}]}',
  responses: (i) =>
    `{"type":"response.output_item.added","output_index":${i},"item":{"type":"function_call","id":"i${i}","call_id":"c${i}","name":"f"}}`,
};
const texts: Readonly<Record<string, (text: string) => string>> = {
  chat: (text) => `{"choices":[{"index":0,"delta":{"content":"${text}"}}]}`,
  messages: (text) => `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"${text}"}}`,
  generateContent: (text) => `{"candidates":[{"index":0,"content":{"parts":[{"text":"${text}"}]}}]}`,
  responses: (text) => `{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"${text}"}`,
};

function sse(events: string): Buffer {
  return Buffer.from(events);
}

function streamShapes(provider: string): Readonly<Record<string, (n: number) => Buffer>> {
  const text = texts[provider] ?? String;
  const call = startedCalls[provider] ?? String;
  return {
    ...sseShapes((n) => text("x".repeat(n))),
    "open tool calls": (n: number) => sse(many(n, (i) => `data: ${call(i)}\n\n`)),
    "equal tool calls": (n: number) => sse(many(n, () => `data: ${call(0)}\n\n`)),
    "tool calls out of order": (n: number) => sse(many(n, (i) => `data: ${call((i * 7_919) % 500)}\n\n`)),
    "deep event": (n: number) => sse(`data: ${"[".repeat(n / 2)}${"]".repeat(n / 2)}\n\n`),
    "many members": (n: number) => sse(`data: {${many(n, (i) => `"x${i}":1`, ",")}}\n\n`),
  };
}

/** Translates the stream to each dialect that the gateway translates to, as `TranslatedResponse` does. */
function translatedStream(provider: Format) {
  return hostile<Buffer>({
    shapes: streamShapes(provider),
    read(bytes, pieceBytes) {
      let events = 0;
      for (const client of CLIENTS) {
        const translation = translationBetween(client, provider)?.stream(context());
        if (translation === undefined) continue;
        const parser = createSseParser(peerInput("llm-provider/event-stream"), ({ event, data }) => {
          const parsed = parseEvent(data);
          if (parsed !== undefined) events += translation.event(event, parsed).length;
          translation.heldChars();
        });
        for (const piece of inPieces(bytes, pieceBytes)) parser.push(piece);
        events += translation.end().length;
      }
      return events;
    },
    pieces: [1_400],
    bytes: 4_000,
  });
}

/** Other readers of streams that are not translated: usage, content, and what hides usage. */
function readNative(bytes: Buffer, pieceBytes: number): string {
  const usage = createUsageReader("text/event-stream", undefined);
  const content = createContentReader("text/event-stream", undefined, () => undefined);
  const hider = createUsageHider();
  for (const piece of inPieces(bytes, pieceBytes)) {
    usage.data(Buffer.from(piece));
    content.data(Buffer.from(piece));
    hider.pass(piece, usageEventAt(piece));
  }
  hider.flush();
  return JSON.stringify([usage.finish(true).usage, content.end().isWhole]);
}

function frame(headers: Buffer, payload: Buffer): Buffer {
  const bytes = Buffer.alloc(16 + headers.length + payload.length);
  bytes.writeUInt32BE(bytes.length, 0);
  bytes.writeUInt32BE(headers.length, 4);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, 8)), 8);
  headers.copy(bytes, 12);
  payload.copy(bytes, 12 + headers.length);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, -4)), bytes.length - 4);
  return bytes;
}

function header(name: string, value: string): Buffer {
  return Buffer.concat([
    Buffer.from([name.length]),
    Buffer.from(name),
    Buffer.from([7, value.length >> 8, value.length & 0xff]),
    Buffer.from(value),
  ]);
}

const EVENT_HEADERS = Buffer.concat([header(":message-type", "event"), header(":event-type", "contentBlockStart")]);
const awsEvent = (payload: string): Buffer => frame(EVENT_HEADERS, Buffer.from(payload));
const awsEvents = (n: number, payload: (i: number) => string): Buffer =>
  Buffer.concat(Array.from({ length: Math.ceil(n / 150) }, (_, i) => awsEvent(payload(i))));

const responses: Readonly<Record<string, (n: number) => string>> = {
  ...jsonShapes((value) => `{"choices":[{"index":0,"message":{"role":"assistant","content":"a","x":${value}}}]}`),
  "many choices": (n) =>
    `{"choices":[${many(n, (i) => `{"index":${i},"message":{"role":"assistant","content":"a"}}`, ",")}]}`,
  "equal choices": (n) => `{"choices":[${many(n, () => '{"index":0,"message":{"content":"a"}}', ",")}]}`,
  "many tool calls": (n) =>
    `{"choices":[{"message":{"tool_calls":[${many(n, (i) => `{"id":"c${i}","function":{"name":"f","arguments":"{}"}}`, ",")}]}}]}`,
  "many parts": (n) => `{"content":[${many(n, () => '{"type":"text","text":"a"}', ",")}]}`,
  "many candidates": (n) =>
    `{"candidates":[${many(n, (i) => `{"index":${i},"content":{"parts":[{"text":"a"}]}}`, ",")}]}`,
};

const REJECTION = { status: 403, message: "no" };
const guards = [
  compileTextGuard("mask", [{ builtin: "email" }, { builtin: "phoneNumber" }] as never, REJECTION as never),
  compileTextGuard("mask", [{ pattern: "sec(ret)+" }] as never, REJECTION as never),
];

const guardedBodies: Readonly<Record<string, (n: number) => string>> = {
  ...jsonShapes((value) => `{"choices":[{"message":{"content":"a","metadata":${value}}}]}`),
  "one large text": (n) => `{"choices":[{"message":{"content":"${"x".repeat(n)}"}}]}`,
  "many matches": (n) => `{"choices":[{"message":{"content":"${"a@b.example ".repeat(n / 12)}"}}]}`,
  "many texts": (n) =>
    `{"choices":[{"message":{"content":[${many(n, () => '{"type":"text","text":"secret"}', ",")}]}}]}`,
  "names with the same mask": (n) =>
    `{"choices":[{"message":{"content":"a","metadata":{${many(n, (i) => `"a${i}@b.example":1`, ",")}}}}]}`,
};

/** The readers read fewer bytes in another way. */
const SPLIT_BYTES = 2_500;

const form = (parts: string): Buffer => Buffer.from(`${parts}--XX--\r\n`, "latin1");
const part = (name: string, value: string): string =>
  `--XX\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;

const usageEvents: Readonly<Record<string, (n: number) => Buffer>> = {
  ...streamShapes("chat"),
  "many usages": (n) => sse(many(n, (i) => `data: {"choices":[],"usage":{"prompt_tokens":${i}}}\n\n`)),
  "one large usage": (n) => sse(`data: {"choices":[],"usage":{"x":"${"y".repeat(n)}"}}\n\n`),
};

export const llmInputs = {
  "client/llm-request": hostile<Buffer>({
    shapes: mapShapes(requests, (text) => Buffer.from(text)),
    read(bytes) {
      const { ok } = finishInTurns(readingSteps("/v1/chat/completions", bytes, "any"));
      return [ok, finishInTurns(estimateSteps(bytes))].join();
    },
  }),
  "client/llm-request-tree": hostile<Buffer>({
    shapes: mapShapes(requests, (text) => Buffer.from(text)),
    read(bytes) {
      const skeleton = finishInTurns(skeletonSteps(peerInput("client/llm-request-tree"), bytes, "nonce"));
      if (skeleton === "not JSON" || "tooLarge" in skeleton) throw new Error("cannot be read");
      for (const provider of PROVIDERS) {
        endTurn();
        const translation = translationBetween("chat", provider);
        if (translation !== undefined) skeleton.write(translation.request(skeleton.value, context()));
      }
      endTurn();
      return finishInTurns(new BodyTexts(skeleton.value, {} as never).guarded(guards)) !== undefined;
    },
  }),
  "client/charged-body": hostile<Buffer>({
    shapes: mapShapes(
      {
        ...jsonShapes((value) => `{"max_tokens":1,"x":${value}}`),
        "many maxima": (n) => `{${many(n, () => '"max_tokens":1', ",")}}`,
        "one large maximum": (n) => `{"max_tokens":${"1".repeat(n)}}`,
      },
      (text) => Buffer.from(text),
    ),
    read: (bytes) => finishInTurns(maxOutputTokensSteps(bytes)),
  }),
  "client/llm-form": hostile<Buffer>({
    shapes: {
      "many parts": (n) => form(many(n, (i) => part(`f${i}`, "a"))),
      "equal names": (n) => form(many(n, () => part("model", "a"))),
      "one large part": (n) => form(part("file", "x".repeat(n))),
      "almost a boundary": (n) => form(part("file", "\r\n--X".repeat(n / 5))),
      "boundary starts": (n) => form(part("file", "\r\n--".repeat(n / 4))),
      "one large head": (n) => form(`--XX\r\ncontent-disposition: form-data; name="${"a".repeat(n)}"\r\n\r\n\r\n`),
      "many lines of a head": (n) => form(`--XX\r\n${many(n, (i) => `x-${i}: 1\r\n`)}\r\n\r\n`),
      "many parameters": (n) =>
        form(`--XX\r\ncontent-disposition: form-data${many(n, (i) => `; a${i}=1`)}\r\n\r\n\r\n`),
      "never completed": (n) => Buffer.from(part("file", "x".repeat(n)).slice(0, -2)),
      "never completed quote": (n) =>
        form(`--XX\r\ncontent-disposition: form-data; name="${"\\".repeat(n)}\r\n\r\n\r\n`),
      "invalid at the end": (n) => form(`${many(n, (i) => part(`f${i}`, "a"))}--XX`),
    },
    read: (bytes) => scanForm(bytes, "multipart/form-data; boundary=XX").ok,
  }),
  "client/llm-tool-arguments": hostile<string>({
    shapes: jsonShapes(),
    read: (json) => isMembers(parseArguments(json, "arguments", {})),
  }),
  "client/recorded-body": hostile<Buffer>({
    shapes: mapShapes(requests, (text) => Buffer.from(text)),
    read: (bytes) => promptMessages(readMembers(peerInput("client/recorded-body"), bytes) ?? {}).length,
  }),
  "llm-provider/compressed-response": hostile<Buffer>({
    shapes: {
      ...compressedShapes((n) => many(n, (i) => `{"a":${i}}`)),
      ...Object.fromEntries(
        Object.entries(compressedShapes((n) => many(n, (i) => `{"a":${i}}`), COMPRESSIONS.br)).map(([name, make]) => [
          `${name}, br`,
          make,
        ]),
      ),
    },
    read: (bytes) => ["gzip", "br"].map((coding) => decompress(COMPRESSED, bytes, coding)?.length).join(),
  }),
  "llm-provider/compressed-usage": hostile<Buffer>({
    shapes: {
      ...compressedShapes((n) => streamShapes("chat")["many small events"]?.(n).toString() ?? ""),
      ...mapShapes(usageEvents, (bytes) => COMPRESSIONS.gzip(bytes)),
    },
    read(bytes, pieceBytes) {
      const reader = createUsageReader("text/event-stream", "gzip");
      for (const piece of inPieces(bytes, pieceBytes)) reader.data(piece);
      return JSON.stringify(reader.finish(true));
    },
    pieces: [100],
    bytes: 4_000,
  }),
  "llm-provider/compressed-content": hostile<Buffer>({
    shapes: compressedShapes((n) => `{"choices":[${many(n, () => '{"message":{"content":"a"}}', ",")}]}`),
    read(bytes, pieceBytes) {
      const reader = createContentReader("application/json", "gzip", () => undefined);
      for (const piece of inPieces(bytes, pieceBytes)) reader.data(piece);
      return JSON.stringify(reader.end());
    },
    pieces: [100],
  }),
  "llm-provider/response": hostile<Buffer>({
    shapes: mapShapes(responses, (text) => Buffer.from(text)),
    read(bytes) {
      const body = finishInTurns(readMembersInSteps(peerInput("llm-provider/response"), bytes));
      if (body === undefined || finishInTurns(hasManyObjects(bytes))) throw new Error("cannot be read");
      const translated: Members[] = [];
      for (const provider of PROVIDERS)
        for (const client of CLIENTS) {
          endTurn();
          const translation = translationBetween(client, provider);
          try {
            if (translation !== undefined) translated.push(translation.response(body, context()));
          } catch {
            // The response is of another dialect.
          }
        }
      return translated.length;
    },
  }),
  "llm-provider/guarded-response": hostile<Buffer>({
    shapes: mapShapes(guardedBodies, (text) => Buffer.from(text)),
    read(bytes) {
      const body = finishInTurns(readMembersInSteps(peerInput("llm-provider/guarded-response"), bytes));
      if (body === undefined) throw new Error("not an object");
      const guarded = finishInTurns(new BodyTexts(body, {} as never).guarded(guards));
      return finishInTurns(stringifyInSteps(guarded)).length;
    },
    bytes: SPLIT_BYTES,
  }),
  "llm-provider/event-stream": together({
    chat: translatedStream("chat"),
    messages: translatedStream("messages"),
    generateContent: translatedStream("generateContent"),
  }),
  "llm-provider/bedrock-stream": hostile<Buffer>({
    shapes: {
      "many events": (n) => awsEvents(n, () => '{"delta":{"text":"a"}}'),
      "open tool calls": (n) =>
        awsEvents(n, (i) => `{"contentBlockIndex":${i},"start":{"toolUse":{"toolUseId":"c${i}","name":"f"}}}`),
      "equal tool calls": (n) =>
        awsEvents(n, () => '{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"c","name":"f"}}}'),
      "one large event": (n) => awsEvent(`{"delta":{"text":"${"x".repeat(n)}"}}`),
      "many headers": (n) =>
        frame(
          Buffer.concat([EVENT_HEADERS, ...Array.from({ length: n / 8 }, (_, i) => header(`x${i % 100}`, "1"))]),
          Buffer.from("{}"),
        ),
      "empty events": (n) =>
        Buffer.concat(Array.from({ length: n / 16 }, () => frame(Buffer.alloc(0), Buffer.alloc(0)))),
      "never completed": (n) => awsEvent(`{"delta":{"text":"${"x".repeat(n)}"}}`).subarray(0, -1),
      "invalid at the end": (n) => Buffer.concat([awsEvents(n, () => "{}"), Buffer.alloc(16)]),
    },
    read(bytes, pieceBytes) {
      let events = 0;
      const translation = translationBetween("chat", "converse")?.stream(context());
      const reader = createEventStreamReader(peerInput("llm-provider/bedrock-stream"), ({ type, payload }) => {
        const parsed = parseEvent(payload.toString("utf8"));
        if (parsed !== undefined) events += translation?.event(type, parsed).length ?? 0;
      });
      const usage = createUsageReader("application/vnd.amazon.eventstream", undefined);
      for (const piece of inPieces(bytes, pieceBytes)) {
        usage.data(Buffer.from(piece));
        reader.push(piece);
      }
      return events + (translation?.end().length ?? 0);
    },
    pieces: STREAM_PIECES,
    bytes: 4_000,
  }),
  "llm-provider/stream-event": hostile<string>({
    shapes: jsonShapes((value) => `{"choices":[{"delta":${value}}]}`),
    read: (data) => finishInTurns(parseEventInSteps(data)) !== undefined,
  }),
  "llm-provider/usage": together({
    chat: hostile<Buffer>({ shapes: usageEvents, read: readNative, pieces: STREAM_PIECES, bytes: SPLIT_BYTES }),
    responses: hostile<Buffer>({ shapes: streamShapes("responses"), read: readNative, pieces: STREAM_PIECES }),
    JSON: hostile<Buffer>({
      shapes: mapShapes(responses, (text) => Buffer.from(text)),
      read(bytes, pieceBytes) {
        const reader = createUsageReader("application/json", undefined);
        for (const piece of inPieces(bytes, pieceBytes)) reader.data(piece);
        return JSON.stringify(reader.finish(true));
      },
      pieces: STREAM_PIECES,
    }),
  }),
  "llm-provider/error": hostile<string>({
    shapes: jsonShapes((value) => `{"error":{"message":"context length exceeded","x":${value}}}`),
    read: (text) =>
      clientError("messages", 400, readMembers(peerInput("llm-provider/error"), text), text).message.length,
  }),
  "llm-provider/tool-arguments": hostile<string>({
    shapes: jsonShapes(),
    read(json) {
      const body: Members = {
        choices: [{ index: 0, message: { tool_calls: [{ id: "c", function: { name: "f", arguments: json } }] } }],
      };
      return JSON.stringify(translationBetween("messages", "chat")?.response(body, context())).length;
    },
  }),
  "llm-provider/recorded-content": hostile<Buffer>({
    shapes: mapShapes(responses, (text) => Buffer.from(text)),
    read(bytes, pieceBytes) {
      let chars = 0;
      const reader = createContentReader("application/json", undefined, (text) => {
        chars += text.length;
      });
      for (const piece of inPieces(bytes, pieceBytes)) reader.data(piece);
      return `${reader.end().isWhole} ${chars}`;
    },
    pieces: STREAM_PIECES,
  }),
  "llm-provider/models": hostile<Buffer>({
    shapes: {
      ...mapShapes(
        jsonShapes((value) => `{"data":${value}}`),
        (text) => Buffer.from(text),
      ),
      "many models": (n) => Buffer.from(`{"data":[${many(n, (i) => `{"id":"m${i}"}`, ",")}]}`),
    },
    read: (bytes) => finishInTurns(readMembersInSteps(peerInput("llm-provider/response"), bytes)) !== undefined,
  }),
  "llm-provider/guarded-text": hostile<readonly string[]>({
    shapes: {
      "many small events": (n) => Array.from({ length: n / 2 }, () => texts.chat?.("ab") ?? ""),
      "one large event": (n) => [texts.chat?.("x".repeat(16 * n)) ?? ""],
      "many matches": (n) => Array.from({ length: n / 12 }, () => texts.chat?.("a@b.example ") ?? ""),
      "a match that never ends": (n) => Array.from({ length: n / 6 }, () => texts.chat?.("secret") ?? ""),
      "a match in small pieces": (n) =>
        Array.from({ length: n / 2 }, (_, i) => texts.chat?.("a@b.example"[i % 11] ?? "") ?? ""),
      "many channels": (n) =>
        Array.from(
          { length: Math.min(n / 20, 900) },
          (_, i) => `{"choices":[{"index":${i},"delta":{"content":"sec"}}]}`,
        ),
    },
    read(events) {
      const guard = createStreamGuard(guards);
      let out = 0;
      for (const data of events)
        out += finishInTurns(guard.event({ event: "message", data, id: undefined, retry: undefined })).length;
      return out + finishInTurns(guard.end()).length;
    },
    bytes: 400,
  }),
} satisfies HostileInputs;
