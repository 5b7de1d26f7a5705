/**
 * Invalid behavior of a server for one request, each with the expected result for the client.
 */
import type { Step } from "./scripted-server.ts";

export interface NonsenseCase {
  readonly name: string;
  readonly steps: readonly Step[];
  /** Why the call fails; undefined where it succeeds. */
  readonly reason?: RegExp;
}

const GOOD: Step = { good: true };

function result(value: string): readonly Step[] {
  return [{ message: `{"jsonrpc":"2.0","id":$ID,"result":${value}}` }];
}

function error(value: string): readonly Step[] {
  return [{ message: `{"jsonrpc":"2.0","id":$ID,"error":${value}}` }];
}

function noise(...messages: readonly string[]): readonly Step[] {
  return [...messages.map((message) => ({ message })), GOOD];
}

function flood(count: number, message: string): readonly Step[] {
  return [{ message, repeat: count }, GOOD];
}

const INVALID = /answered with invalid JSON/;
const DEEP = `${"[".repeat(2_000)}${"]".repeat(2_000)}`;

/** For a request of any method. */
export const ANY_METHOD: readonly NonsenseCase[] = [
  { name: "a word that is no value", steps: result('{"a":bad}'), reason: INVALID },
  {
    name: "a result that breaks off",
    steps: [{ message: '{"jsonrpc":"2.0","id":$ID,"result":{"a":[' }],
    reason: INVALID,
  },
  { name: "text behind the message", steps: [{ message: '{"id":$ID,"result":{}} and more' }], reason: INVALID },
  { name: "a comma too many", steps: result('{"a":1,}'), reason: INVALID },
  { name: "a control character", steps: result('{"a":"\u0001"}'), reason: INVALID },
  { name: "an escape that is none", steps: result('{"a":"\\x41"}'), reason: INVALID },
  { name: "a number that is none", steps: result('{"a":01}'), reason: INVALID },
  { name: "a repeated key", steps: result('{"a":{"b":1,"b":2}}'), reason: /the key "b" is repeated/ },
  { name: "two results", steps: [{ message: '{"id":$ID,"result":{},"result":{}}' }], reason: /"result" is repeated/ },
  { name: "two ids", steps: [{ message: '{"id":1,"result":{},"id":$ID}' }], reason: /"id" is repeated/ },
  { name: "deep nesting", steps: result(`{"a":${DEEP}}`), reason: /nested deeper/ },
  {
    name: "deep nesting in an error",
    steps: error(`{"code":1,"message":"x","data":${DEEP}}`),
    reason: /nested deeper/,
  },
  {
    name: "a result and an error",
    steps: [{ message: '{"id":$ID,"result":{},"error":{"code":1,"message":"x"}}' }],
    reason: /both/,
  },
  { name: "neither result nor error", steps: [{ message: '{"jsonrpc":"2.0","id":$ID}' }], reason: /neither/ },
  {
    name: "a request that answers",
    steps: [{ message: '{"id":$ID,"method":"x","result":{}}' }],
    reason: /both a request and/,
  },
  { name: "a result that is null", steps: result("null"), reason: /not an object/ },
  { name: "a result that is a list", steps: result("[]"), reason: /not an object/ },
  { name: "a result that is a string", steps: result('"x"'), reason: /not an object/ },
  { name: "an error that is a string", steps: error('"x"'), reason: /no code or no message/ },
  { name: "an error without a code", steps: error('{"message":"x"}'), reason: /no code or no message/ },
  { name: "an error without a message", steps: error('{"code":1}'), reason: /no code or no message/ },
  { name: "an error that is null", steps: error("null"), reason: /no code or no message/ },
  { name: "two answers", steps: [GOOD, GOOD] },
  { name: "a broken answer after the good one", steps: [GOOD, ...result("bad")] },
  {
    name: "answers to nobody",
    steps: noise('{"id":99999,"result":{}}', '{"id":null,"result":{}}', '{"id":"1","result":{}}'),
  },
  {
    name: "answers under ids of every type",
    steps: noise(
      '{"id":{},"result":{}}',
      '{"id":[1],"result":{}}',
      '{"id":true,"result":{}}',
      '{"id":-1,"result":{}}',
      '{"id":1e400,"result":{}}',
    ),
  },
  {
    name: "an error without an id",
    steps: noise('{"id":null,"error":{"code":-32700,"message":"x"}}', '{"error":{"code":1,"message":"x"}}'),
  },
  {
    name: "what is no message",
    steps: noise("hello", "{}", "[]", "null", "[INFO] x", '{"a":', "12", '"x"', '{"method":5}'),
  },
  {
    name: "notifications that cannot be read",
    steps: noise(
      '{"method":"notifications/message","params":{"level":bad}}',
      '{"method":"notifications/message","params":[]}',
      '{"method":"notifications/progress","params":{"progressToken":{}}}',
      '{"method":"notifications/resources/updated","params":{"uri":5}}',
      '{"method":"notifications/resources/updated","params":{"uri":bad}}',
      '{"method":"notifications/cancelled","params":{"requestId":{}}}',
      '{"method":"notifications/tools/list_changed","params":null}',
    ),
  },
  {
    name: "requests that cannot be read",
    steps: noise(
      '{"id":"q1","method":"roots/list","params":{"a":bad}}',
      '{"id":"q2","method":"roots/list","params":5}',
      '{"id":null,"method":"ping"}',
      '{"id":{},"method":"ping"}',
      '{"id":bad,"method":"ping"}',
    ),
  },
  { name: "requests under the ids of ours", steps: noise('{"jsonrpc":"2.0","id":$ID,"method":"ping"}') },
  { name: "the same question again and again", steps: flood(50, '{"jsonrpc":"2.0","id":"same","method":"ping"}') },
  {
    name: "a flood of notifications",
    steps: flood(1_000, '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'),
  },
  { name: "a batch with good and bad", steps: noise('[{"id":99999,"result":{}},1,null,{"method":"notifications/x"}]') },
];

/** For `tools/list`. */
export const LISTS_OF_TOOLS: readonly NonsenseCase[] = [
  { name: "no list", steps: result("{}"), reason: /no list of tools/ },
  { name: "a list that is an object", steps: result('{"tools":{}}'), reason: /no list of tools/ },
  { name: "a list that is null", steps: result('{"tools":null}'), reason: /no list of tools/ },
  { name: "an item that is null", steps: result('{"tools":[null]}'), reason: /"name" is not a string/ },
  { name: "an item without a name", steps: result('{"tools":[{"title":"x"}]}'), reason: /"name" is not a string/ },
  { name: "a name that is a number", steps: result('{"tools":[{"name":5}]}'), reason: /"name" is not a string/ },
  { name: "a name that is a list", steps: result('{"tools":[{"name":["echo"]}]}'), reason: /"name" is not a string/ },
  { name: "two lists", steps: result('{"tools":[],"tools":[{"name":"secret"}]}'), reason: /"tools" is repeated/ },
  {
    name: "a cursor that is a number",
    steps: result('{"tools":[],"nextCursor":5}'),
    reason: /cursor that is not a string/,
  },
  { name: "no further page, as null", steps: result('{"tools":[{"name":"echo"}],"nextCursor":null}') },
  { name: "half a character in a name", steps: result('{"tools":[{"name":"echo"},{"name":"\\ud800"}]}') },
  {
    name: "numbers that nobody can hold",
    steps: result('{"tools":[{"name":"echo","x":1e999,"y":123456789012345678901234567890}]}'),
  },
  {
    name: "metadata that is none",
    steps: result('{"tools":[{"name":"echo","_meta":5,"inputSchema":null}],"_meta":"x"}'),
  },
  {
    name: "annotations that are none",
    steps: result(
      '{"tools":[{"name":"echo","inputSchema":{"properties":{"a":null,"x-mcp-header":{"x-mcp-header":5}}}}]}',
    ),
  },
];

const EVENTS = { "content-type": "text/event-stream" };
const JSON_TYPE = { "content-type": "application/json" };

/** For any method, over streamable HTTP only. */
export const OVER_HTTP: readonly NonsenseCase[] = [
  { name: "202", steps: [{ status: 202 }], reason: /sent no response/ },
  { name: "204", steps: [{ status: 204 }], reason: /sent no response/ },
  { name: "a redirect", steps: [{ status: 302, headers: { location: "http://127.0.0.1:1/" } }], reason: /status 302/ },
  { name: "500", steps: [{ status: 500 }, { raw: "<h1>sorry</h1>" }], reason: /status 500: <h1>sorry/ },
  {
    name: "a page",
    steps: [{ status: 200, headers: { "content-type": "text/html" } }, { raw: "<html>" }],
    reason: /a JSON-RPC message/,
  },
  {
    name: "JSON as events",
    steps: [{ status: 200, headers: EVENTS }, { raw: '{"id":$ID,"result":{}}' }],
    reason: /ended its response early/,
  },
  {
    name: "events as JSON",
    steps: [{ status: 200, headers: JSON_TYPE }, { raw: "data: {}\n\n" }],
    reason: /a JSON-RPC message/,
  },
  {
    name: "events that are no messages",
    steps: [{ status: 200, headers: EVENTS }, { raw: "data: x\n\nid: 5\nevent: y\ndata: z" }],
    reason: /ended its response early/,
  },
  {
    name: "an event that breaks off",
    steps: [{ status: 200, headers: EVENTS }, { raw: 'data: {"id":$ID,"resu' }],
    reason: /ended its response early/,
  },
  {
    name: "a body that breaks off",
    steps: [
      { status: 200, headers: { ...JSON_TYPE, "content-length": "1000" } },
      { raw: '{"id":$ID' },
      { end: "close" },
    ],
    reason: /ended its response early/,
  },
  {
    name: "another id",
    steps: [{ message: '{"id":99999,"result":{}}' }],
    reason: /under an id that is not the request's/,
  },
  {
    name: "an id of another type",
    steps: [{ message: '{"id":"$ID","result":{}}' }],
    reason: /under an id that is not the request's/,
  },
  {
    name: "a broken event without an end",
    steps: [{ status: 200, headers: EVENTS }, { raw: 'data: {"id":$ID,"result":{"a":bad}}\n\n' }, { stay: true }],
    reason: INVALID,
  },
  { name: "a new session", steps: [{ status: 200, headers: { ...JSON_TYPE, "mcp-session-id": "another" } }, GOOD] },
];
