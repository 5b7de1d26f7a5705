/** Hostile inputs of the readers of MCP messages. */

import { LineSplitter } from "../../../src/base/line-splitter.ts";
import { type PeerInput, peerInput } from "../../../src/base/peer-inputs.ts";
import { finish, SLICED_BYTES } from "../../../src/base/sliced-work.ts";
import { TextPieces } from "../../../src/base/text-pieces.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { createSseParser } from "../../../src/http/sse.ts";
import { jsonProblemInSteps } from "../../../src/json/validate-json.ts";
import { decodeCursor } from "../../../src/mcp/aggregation/merge-responses.ts";
import { resultReader } from "../../../src/mcp/openapi/api-results.ts";
import { parseOpenApi } from "../../../src/mcp/openapi/document.ts";
import { SMALL_JSON_CHARS } from "../../../src/mcp/openapi/load-description.ts";
import { convertOperations } from "../../../src/mcp/openapi/operations.ts";
import { filterList, listProblem } from "../../../src/mcp/protocol/access.ts";
import {
  asClientRequest,
  asMembersResult,
  type ClientMessage,
  parseClientMessages,
  type ServerMessage,
} from "../../../src/mcp/protocol/json-rpc.ts";
import { handshakeRefusal, readDiscovered, readInitialized } from "../../../src/mcp/server-side/upstream.ts";
import { parseEventId } from "../../../src/mcp/session/event-stream.ts";
import { isLargeAnswer, readyInSteps, responseOutcome } from "../../../src/mcp/session/session-calls.ts";
import { readSessionId } from "../../../src/mcp/session/session-records.ts";
import { Quarantine } from "../../../src/mcp/tools/quarantine.ts";
import { guardedMessage } from "../../../src/mcp/tools/result-guard.ts";
import { parseToolLocks } from "../../../src/mcp/tools/tool-lock.ts";
import { parseServerText, parseServerTextInSteps } from "../../../src/mcp/transports/server-messages.ts";
import { StderrTail } from "../../../src/mcp/transports/stdio-transport.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import type { SigningKey } from "../../../src/store/signing-key.ts";
import { fakeClock } from "../../support/fake-clock.ts";
import { type HostileInputs, hostile, inPieces, many, mapShapes, STREAM_PIECES } from "../hostile.ts";
import { COMPRESSIONS, compressedShapes, jsonShapes, lineShapes, noise, sseShapes } from "../shapes.ts";
import { endTurn, finishInTurns, inWorker } from "../turns.ts";

const MESSAGE = peerInput("mcp-server/http-response");

const inCall = (value: string): string =>
  `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":${value}}}}`;
const inInitialize = (value: string): string =>
  `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"x":${value}},"clientInfo":{"name":"a","version":"1"}}}`;
const inResult = (value: string): string => `{"jsonrpc":"2.0","id":1,"result":{"content":${value}}}`;
const inError = (value: string): string =>
  `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"m","data":${value}}}`;
const inAbout = (value: string): string =>
  `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"x":${value}},"serverInfo":{}}}`;

const clientMessages = {
  ...jsonShapes(inCall),
  "many messages": (n: number) => `[${many(n, (i) => `{"jsonrpc":"2.0","id":${i},"method":"ping"}`, ",")}]`,
  "equal IDs": (n: number) => `[${many(n, () => '{"jsonrpc":"2.0","id":1,"method":"ping"}', ",")}]`,
  "many members of the message": (n: number) => `{"jsonrpc":"2.0",${many(n, (i) => `"x${i}":1`, ",")}}`,
  "one large ID": (n: number) => `{"jsonrpc":"2.0","id":"${"x".repeat(n)}","method":"ping"}`,
  "one large method": (n: number) => `{"jsonrpc":"2.0","id":1,"method":"${"x".repeat(n)}"}`,
};

function count(messages: ClientMessage | readonly ClientMessage[]): number {
  return Array.isArray(messages) ? messages.length : 1;
}

const serverShapes = {
  ...jsonShapes(inResult),
  "many messages": (n: number) => `[${many(n, (i) => `{"jsonrpc":"2.0","id":${i},"result":{}}`, ",")}]`,
  "many members of the message": (n: number) => `{"jsonrpc":"2.0",${many(n, (i) => `"x${i}":1`, ",")}}`,
  "one large ID": (n: number) => `{"jsonrpc":"2.0","id":"${"x".repeat(n)}","result":{}}`,
};

const small = (_: number, index: number): string => `{"jsonrpc":"2.0","id":${index},"result":{}}`;
const sized = (n: number, index: number): string =>
  n === 1 ? small(n, index) : `{"jsonrpc":"2.0","id":1,"result":{"text":"${"x".repeat(n)}"}}`;

const tool = (i: number): string => `{"name":"tool${i}","inputSchema":{"type":"object"}}`;
const inTools = (tools: string): string => `{"jsonrpc":"2.0","id":1,"result":{"tools":[${tools}]}}`;
const toolLists = {
  "many tools": (n: number) => inTools(many(n, tool, ",")),
  "equal names": (n: number) => inTools(many(n, () => tool(1), ",")),
  "tools without names": (n: number) => inTools(many(n, () => "{}", ",")),
  "one large tool": (n: number) => inTools(`{"name":"a","description":"${"x".repeat(n)}"}`),
  "one large name": (n: number) => inTools(`{"name":"${"x".repeat(n)}"}`),
  "many members of a tool": (n: number) => inTools(`{"name":"a",${many(n, (i) => `"x${i}":1`, ",")}}`),
  "many members of the result": (n: number) =>
    `{"jsonrpc":"2.0","id":1,"result":{${many(n, (i) => `"x${i}":1`, ",")},"tools":[]}}`,
  "deep schema": (n: number) => inTools(`{"name":"a","inputSchema":${'{"a":'.repeat(n / 6)}1${"}".repeat(n / 6)}}`),
  "one large cursor": (n: number) => `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"${"x".repeat(n)}"}}`,
};

const lock = parseToolLocks('{"version":2,"targets":{"a":{"a":{"name":"a","description":"b"}}}}')("a");
const listTools = asClientRequest("tools/list", "{}");
const callTool = asClientRequest("tools/call", '{"name":"a"}');

/** Accepts everything: clients cannot sign, but the limits after the check must hold as well. */
const anyKey: SigningKey = { sign: () => "", isSignature: () => true, isGiven: true };

const sessionId = (packed: Buffer): string =>
  `${"a".repeat(32)}.${Buffer.concat([Buffer.from([0, 0, 0, 0, 1]), packed]).toString("base64url")}.${"A".repeat(22)}`;

/** Transports parse only large messages in slices. */
function received(input: PeerInput<"JSON">, text: string) {
  const steps = parseServerTextInSteps(input, text);
  return text.length <= SLICED_BYTES ? finish(steps) : finishInTurns(steps);
}

function receivedMessage(text: string): ServerMessage {
  const [message] = received(MESSAGE, text);
  if (message === undefined || message.kind === "broken") throw new Error("not a message");
  return message;
}

const serverEvents = (input: PeerInput<"JSON">) =>
  hostile<string>({ shapes: serverShapes, read: (text) => received(input, text).length });

function texts(message: ServerMessage): unknown {
  const guard = {
    *checked(parts: readonly string[]) {
      yield;
      return parts.map((part) => part.replaceAll("secret", "***"));
    },
    refusal: "no",
  };
  return finishInTurns(guardedMessage(message, guard, "tools/call"))?.text.length;
}

const inText = (text: string): string =>
  `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":${JSON.stringify(text)}}]}}`;

const JSON_TYPE = new HeaderList(["content-type", "application/json"]);
const IMAGE_TYPE = new HeaderList(["content-type", "image/png"]);
const TEXT_TYPE = new HeaderList(["content-type", "text/plain"]);

interface ApiResponse {
  readonly headers: HeaderList;
  readonly body: Buffer;
}

const responseOf =
  (headers: HeaderList) =>
  (body: string | Buffer): ApiResponse => ({ headers, body: Buffer.from(body) });

const YAML = peerInput("openapi-server/yaml-description");
const operation = (i: number): string => `  /p${i}:\n    get:\n      operationId: o${i}\n      responses: {}\n`;
const yamlDescriptions = {
  "many operations": (n: number) => many(n, operation),
  "equal paths": (n: number) => many(n, () => operation(1)),
  "equal IDs": (n: number) => many(n, (i) => operation(1).replace("/p1", `/p${i}`)),
  "many parameters": (n: number) =>
    `  /p:\n    get:\n      parameters:\n${many(n, (i) => `      - {name: a${i}, in: query}\n`)}`,
  "one large text": (n: number) => `  /p: {get: {description: ${"x".repeat(n)}}}\n`,
  "flow lists": (n: number) => `  x: [${many(n, () => "1", ",")}]\n`,
  "deep flow lists": (n: number) => `  x: ${"[".repeat(n / 2)}${"]".repeat(n / 2)}\n`,
  comments: (n: number) => "# x\n".repeat(n / 4),
  "invalid at the end": (n: number) => `${many(n, operation)}\t}`,
};
const jsonOperation = (i: number): string => `"/p${i}":{"get":{"operationId":"o${i}","responses":{}}}`;
const jsonDescriptions = {
  ...jsonShapes((value) => `{"openapi":"3.0.0","paths":{"/a":{"get":{"responses":{},"x-a":${value}}}}}`),
  "many operations": (n: number) => `{"openapi":"3.0.0","paths":{${many(n, jsonOperation, ",")}}}`,
  "many schemas": (n: number) =>
    `{"openapi":"3.0.0","paths":{},"components":{"schemas":{${many(n, (i) => `"s${i}":{"type":"object"}`, ",")}}}}`,
};

function describedTools(text: string): number {
  const parsed = () => convertOperations(parseOpenApi(text, YAML), { reserved: [] });
  const isSmall = text.length <= SMALL_JSON_CHARS && text.startsWith("{");
  return (isSmall ? finishInTurns(parsed()) : inWorker(() => finish(parsed()))).byName.size;
}

const yamlDescription = hostile<string>({
  shapes: mapShapes(yamlDescriptions, (paths) => `openapi: 3.0.0\npaths:\n${paths}`),
  read: describedTools,
});

export const mcpInputs = {
  "client/mcp-message": hostile<string>({
    shapes: {
      ...clientMessages,
      ...Object.fromEntries(
        Object.entries(jsonShapes(inInitialize)).map(([name, make]) => [`${name} of initialize`, make]),
      ),
    },
    read: (text) => count(parseClientMessages(text)),
  }),
  "client/mcp-session-id": hostile<string>({
    shapes: {
      ...mapShapes(
        compressedShapes((n) => many(n, (i) => `"a${i}":1`, ","), COMPRESSIONS.raw),
        sessionId,
      ),
      "many dots": (n) => ".".repeat(n),
      "one large name": (n) => `${"a".repeat(n)}.AAAAAAA.${"A".repeat(22)}`,
    },
    read: (id) => readSessionId(anyKey, id, { backend: "b", owner: undefined })?.params?.length,
  }),
  "client/mcp-cursor": hostile<string>({
    shapes: mapShapes(
      jsonShapes((value) => `{"a":${value}}`),
      (text) => Buffer.from(text).toString("base64url"),
    ),
    read: (cursor) => decodeCursor(cursor) !== undefined,
  }),
  "client/mcp-event-id": hostile<string>({
    shapes: {
      "many digits": (n) => "1".repeat(n),
      "many hyphens": (n) => "1-".repeat(n / 2),
      "one large answer": (n) => `1-1-s${Buffer.from(JSON.stringify("x".repeat(n))).toString("base64url")}`,
      "one large number answer": (n) => `1-1-n${"9".repeat(n)}`,
      "deep answer": (n) => `1-1-s${Buffer.from("[".repeat(n)).toString("base64url")}`,
      "invalid at the end": (n) => `1-1e${"1".repeat(n)}-`,
    },
    read: (id) => parseEventId(id)?.stream,
  }),
  "mcp-server/stdio-lines": hostile<Buffer>({
    shapes: { ...lineShapes(sized), ...mapShapes(serverShapes, (text) => Buffer.from(`${text}\n`)) },
    read(bytes, pieceBytes) {
      let messages = 0;
      const splitter = new LineSplitter(peerInput("mcp-server/stdio-lines"), (line) => {
        messages += received(MESSAGE, line).length;
      });
      for (const piece of inPieces(bytes, pieceBytes)) splitter.push(piece);
      return messages;
    },
    pieces: STREAM_PIECES,
  }),
  "mcp-server/stdio-log": hostile<Buffer>({
    shapes: lineShapes((n, i) => `${i} Error: ${"x".repeat(n)}`),
    read(bytes, pieceBytes) {
      const tail = new StderrTail({ name: "a", clock: fakeClock(), logger: silentLogger, secrets: ["secret-value"] });
      for (const piece of inPieces(bytes, pieceBytes)) tail.push(piece);
      return tail.likelyCause()?.length;
    },
    pieces: STREAM_PIECES,
  }),
  "mcp-server/http-response": hostile<Buffer>({
    shapes: mapShapes(serverShapes, (text) => Buffer.from(text)),
    read(bytes, pieceBytes) {
      const text = new TextPieces();
      for (const piece of inPieces(bytes, pieceBytes)) text.add(piece);
      return finishInTurns(parseServerTextInSteps(MESSAGE, text.end())).length;
    },
    pieces: STREAM_PIECES,
  }),
  "mcp-server/event-stream": hostile<Buffer>({
    shapes: sseShapes((n) => sized(n, 1)),
    read(bytes, pieceBytes) {
      let messages = 0;
      const parser = createSseParser(peerInput("mcp-server/event-stream"), ({ data }) => {
        messages += received(MESSAGE, data).length;
      });
      for (const piece of inPieces(bytes, pieceBytes)) parser.push(piece);
      return messages;
    },
    pieces: STREAM_PIECES,
  }),
  "mcp-server/event": serverEvents(MESSAGE),
  "mcp-server/stdio-message": serverEvents(peerInput("mcp-server/stdio-message")),
  "mcp-server/error": hostile<string>({
    shapes: jsonShapes(inError),
    read: (text) => parseServerText(MESSAGE, text).map(({ kind }) => kind),
  }),
  "mcp-server/about": hostile<string>({
    shapes: jsonShapes(inAbout),
    read(text) {
      const answer = receivedMessage(text);
      endTurn();
      const initialized = readInitialized(answer) ?? handshakeRefusal(answer);
      endTurn();
      return [initialized, readDiscovered(answer)].length;
    },
    // Shorter messages are not counted, because they cannot have too many values.
    bytes: 12_000,
  }),
  "mcp-server/locked-tool": hostile<string>({
    shapes: jsonShapes((value) => `{"name":"a","description":"d","inputSchema":{"properties":{"x":${value}}}}`),
    read(text) {
      // The depth is checked with the list.
      if (finishInTurns(jsonProblemInSteps(MESSAGE, text)) !== undefined) throw new Error("not a valid definition");
      endTurn();
      return new Quarantine("a", silentLogger).passes("a", text, lock);
    },
    bytes: 12_000,
  }),
  "mcp-server/tool-list": hostile<string>({
    shapes: toolLists,
    read(text) {
      const message = receivedMessage(text);
      finishInTurns(listProblem(listTools, message, "a"));
      return finishInTurns(filterList(message, "tools/list", (name) => name.endsWith("1"))).text.length;
    },
  }),
  "mcp-server/part": hostile<string>({
    shapes: {
      ...jsonShapes(inText),
      "one large error message": (n) => `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"${"x".repeat(n)}"}}`,
      "many texts": (n) => inResult(`[${many(n, () => '{"type":"text","text":"a"}', ",")}],"isError":true`),
    },
    read(text) {
      const message = receivedMessage(text);
      endTurn();
      if (!isLargeAnswer(message)) return responseOutcome(callTool, undefined, message).kind;
      return finishInTurns(readyInSteps(message, { request: callTool, target: undefined })).outcome.kind;
    },
  }),
  "mcp-server/guarded-text": hostile<string>({
    shapes: {
      "one large text": (n) => inText("x".repeat(n)),
      "many matches": (n) => inText("secret ".repeat(n / 7)),
      "many texts": (n) => inResult(`[${many(n, () => '{"type":"text","text":"secret"}', ",")}]`),
      "escaped text": (n) => inResult(`[{"type":"text","text":"${"\\u0073ecret".repeat(n / 11)}"}]`),
      "deep lists": (n) => inResult("[".repeat(n / 2) + "]".repeat(n / 2)),
      "equal names": (n) => inResult(`[{${many(n, () => '"text":"secret"', ",")}}]`),
    },
    read: (text) => texts(receivedMessage(text)),
  }),
  "openapi-server/response": hostile<ApiResponse>({
    shapes: {
      ...mapShapes(jsonShapes(), responseOf(JSON_TYPE)),
      "an image": (n) => responseOf(IMAGE_TYPE)(noise(n)),
      "a text": (n) => responseOf(TEXT_TYPE)('"\\\n'.repeat(n / 3)),
    },
    read({ headers, body }, pieceBytes) {
      const reader = resultReader(200, headers);
      for (const piece of inPieces(body, pieceBytes)) reader.add(piece);
      return responseOutcome(callTool, undefined, asMembersResult(finishInTurns(reader.result()))).kind;
    },
    pieces: STREAM_PIECES,
  }),
  "openapi-server/description": hostile<string>({ shapes: jsonDescriptions, read: describedTools }),
  "openapi-server/yaml-description": yamlDescription,
  "file/yaml-description": yamlDescription,
} satisfies HostileInputs;
