/**
 * JSON-RPC messages as text: what is read of them is what JSON.parse reads, and what is rewritten parses to the same but
 * for the member that was meant.
 */

import { peerInput } from "../../../src/base/peer-inputs.ts";
import { finish } from "../../../src/base/sliced-work.ts";
import { insertMembers, members, removeMembers, splice } from "../../../src/json/json-text.ts";
import {
  createNames,
  renamedItem,
  renamedNotification,
  renamedRequest,
  renamedResult,
} from "../../../src/mcp/aggregation/names.ts";
import {
  asResult,
  JsonRpcProblem,
  messageId,
  parseClientMessages,
  withId,
} from "../../../src/mcp/protocol/json-rpc.ts";
import { readListContent } from "../../../src/mcp/protocol/list-content.ts";
import { parseServerText } from "../../../src/mcp/transports/server-messages.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed, randomJson, randomObject, writtenName } from "../json.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

const MESSAGE = peerInput("mcp-server/http-response");

const NAMES = [
  "jsonrpc",
  "id",
  "method",
  "params",
  "result",
  "error",
  "name",
  "uri",
  "_meta",
  "content",
  "contents",
  "resource",
  "x",
];
const METHODS = [
  "tools/call",
  "resources/read",
  "prompts/get",
  "completion/complete",
  "notifications/resources/updated",
  "ping",
];
const IDS = ["1", '"a"', '"1"', "null", "1.5", "12345678901234567890", '"\\u0061"', "true", "{}", "-1", '""'];
const names = createNames(["one", "two"], "always");

function generate(random: Random): string {
  const shape = { names: NAMES, maxDepth: 3, brokenOneIn: 200 };
  if (random.oneIn(10)) return randomJson(random, shape);
  const name = (key: string): string => writtenName(key, random);
  const parts = [`${name("jsonrpc")}:"2.0"`];
  if (!random.oneIn(3)) parts.push(`${name("id")}:${random.pick(IDS)}`);
  if (!random.oneIn(3)) parts.push(`${name("method")}:${JSON.stringify(random.pick(METHODS))}`);
  const inner = random.pick([
    () => randomJson(random, shape),
    () => randomObject(random, shape),
    () => `{${name("name")}:"one_tool",${name("arguments")}:${randomObject(random, shape)}}`,
    () => `{"contents":[{${name("uri")}:"file:///a"},${randomObject(random, shape)}]}`,
    () =>
      `{"content":[{"type":"resource","resource":{"uri":"file:///b"}},{"type":"resource_link","uri":${randomJson(random, shape)}}]}`,
  ]);
  if (!random.oneIn(3)) parts.push(`${name("params")}:${inner()}`);
  if (random.oneIn(2)) parts.push(`${name(random.oneIn(4) ? "error" : "result")}:${inner()}`);
  parts.sort(() => random.int(3) - 1);
  const text = `{${parts.join(random.oneIn(4) ? " , " : ",")}}`;
  return random.oneIn(8) ? `[${text},${text.replace("1", "2")}]` : text;
}

function clientOutcome(text: string): string {
  let outcome = "";
  const refusal = refusalOf(() => {
    const found = parseClientMessages(text);
    const value = parsed(text)?.value;
    const list = Array.isArray(found) ? found : [found];
    const values = Array.isArray(value) ? value : [value];
    expectSame(list.length, values.length, "how many messages");
    for (const [i, message] of list.entries()) {
      const seen = values[i] as Record<string, unknown>;
      expect(seen.jsonrpc === "2.0", "not JSON-RPC 2.0");
      expectSame(
        "method" in message ? message.method : null,
        typeof seen.method === "string" ? seen.method : null,
        "the method",
      );
      if (message.kind === "notification") expect(!("id" in seen), "an id was overlooked");
      else {
        expectSame(parsed(message.id)?.value, seen.id, "the id");
        expectSame(parsed(withId(message, "77"))?.value, { ...seen, id: 77 }, "with another id");
      }
      if (message.kind === "request") {
        const renamed = renamedRequest(message, "other");
        const was = seen.params as Record<string, unknown> | undefined;
        const now = (parsed(renamed.text)?.value as Record<string, unknown> | undefined)?.params;
        const expected =
          message.method === "tools/call" && typeof was?.name === "string"
            ? { ...was, name: "other" }
            : message.method === "resources/read" && typeof was?.uri === "string"
              ? { ...was, uri: "other" }
              : undefined;
        if (expected) expectSame(now, expected, "with another name");
        expectSame(parsed(renamed.text.slice(renamed.idStart, renamed.idEnd))?.value, seen.id, "where the id moved to");
      }
      outcome += `${message.kind} ${"method" in message ? message.method : ""} `;
    }
  }, JsonRpcProblem);
  return refusal === undefined ? outcome : `refused: ${refusal.message.replace(/"[^"]*"/, "…")}`;
}

function serverOutcome(text: string): string {
  const read = parseServerText(MESSAGE, text);
  const json = parsed(text);
  for (const message of read) {
    if (message.kind === "broken") {
      expect(message.reason !== "", "a broken message without a reason");
      continue;
    }
    expect(json !== undefined, "a message was read from what is no JSON");
    const method = METHODS.find((one) => text.includes(one)) ?? "tools/call";
    const result = finish(renamedResult(message, method, names, "one"));
    const note = renamedNotification(message, names, "one");
    expect(parsed(result.text) !== undefined && parsed(note) !== undefined, "a rewritten message is no JSON");
    if (messageId(result) !== undefined) expectSame(messageId(result), messageId(message), "the id moved");
  }
  const [message] = read;
  if (message === undefined || json === undefined || !isRecord(json.value)) return `server ${read.length}`;
  if (message.kind === "broken") return `server broken: ${message.reason.replace(/"[^"]*"|\d+/g, "…")}`;
  const { value } = json;
  expect(typeof value.method === "string" || "result" in value || "error" in value, "it is no message");
  const id = messageId(message);
  expectSame(id === undefined ? "none" : parsed(id)?.value, "id" in value ? value.id : "none", "the server's id");
  if (id !== undefined)
    expectSame(parsed(withId(message, "77"))?.value, { ...value, id: 77 }, "the server's message with another id");
  expectSame(message.method ?? null, typeof value.method === "string" ? value.method : null, "the server's method");
  return `server ${message.kind} ${message.method ?? ""}`;
}

function checkText(text: string): void {
  const json = parsed(text);
  if (json === undefined || !isRecord(json.value)) return;
  const all = members(text, 0);
  expectSame([...new Set(all.map(({ key }) => key))].sort(), Object.keys(json.value).sort(), "the members");
  const added = parsed(splice(text, [insertMembers(text, 0, '"z9":1')]))?.value;
  expectSame(added, { z9: 1, ...json.value }, "with a member more");
  const { id: _id, params: _params, ...rest } = json.value;
  const removed = parsed(
    splice(
      text,
      removeMembers(text, 0, (key) => key === "id" || key === "params"),
    ),
  )?.value;
  expectSame(removed, rest, "with members less");
  if (typeof json.value.name === "string") {
    const list = asResult(`{"tools":[${text}]}`);
    const { items = [] } = finish(readListContent(list, { member: "tools", key: "name" }));
    expectSame(items.length, 1, "the items of a list");
    for (const item of items)
      expect(
        parsed(renamedItem(list.text, item, "tools/list", names, "one")) !== undefined,
        "a renamed item is no JSON",
      );
  }
}

export const jsonRpc = defineTarget<string>({
  name: "json-rpc",
  seeds: [
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one_tool","arguments":{"a":[1,{"b":2}]}}}',
    '{"jsonrpc":"2.0","id":"a","result":{"contents":[{"uri":"file:///a","text":"x"}]}}',
    '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}',
    '{"\\u0069d":1,"jsonrpc":"2.0","result":{}}',
    '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
  ],
  smokeCases: 1_500,
  generate,
  run(text) {
    checkText(text);
    return `${clientOutcome(text)}; ${serverOutcome(text)}`;
  },
});
