/**
 * The kinds of HTTP/2 messages in scripts. A message defines its frames, whether the backend may receive it (`from:
 * "backend"`: must respond to it; `"either"`; `"gateway"`: never), and whether it may end the connection.
 */
import { FLAG, fieldBlock, frame, number, TYPE } from "./http2-frames.mjs";
import { hashOf } from "./kinds.mjs";

const { endStream, endHeaders, padded } = FLAG;

const pseudo = (id, method = "GET") => [
  [":method", method],
  [":scheme", "http"],
  [":authority", "a.example"],
  [":path", `/b/${id}`],
];

/** A head in one frame, or with CONTINUATION frames, as chance has it. */
function head(stream, fields, flags, random) {
  const block = fieldBlock(fields);
  if (random() < 0.7 || block.length < 4) return [frame(TYPE.headers, flags | endHeaders, stream, block)];
  const cut = 1 + Math.floor(random() * (block.length - 2));
  return [
    Buffer.concat([
      frame(TYPE.headers, flags, stream, block.subarray(0, cut)),
      frame(TYPE.continuation, endHeaders, stream, block.subarray(cut)),
    ]),
  ];
}

const data = (stream, text, flags = 0) => frame(TYPE.data, flags, stream, Buffer.from(text, "latin1"));

function get(more = [], change = (fields) => fields) {
  return (stream, id, random) => ({
    method: "GET",
    body: "",
    frames: head(stream, [...change(pseudo(id)), ["x-id", id], ...more], endStream, random),
  });
}

/** `declared`: the value of `content-length`, if any. */
function post(declared = () => undefined, more = []) {
  return (stream, id, random) => {
    const body = "b".repeat(Math.floor(random() * 300)) + id;
    const length = declared(body);
    const fields = [...pseudo(id, "POST"), ["x-id", id], ...more];
    if (length !== undefined) fields.push(["content-length", length]);
    const cut = Math.floor(random() * body.length);
    return {
      method: "POST",
      body,
      frames: [
        ...head(stream, fields, 0, random),
        data(stream, body.slice(0, cut)),
        data(stream, body.slice(cut), endStream),
      ],
    };
  };
}

function trailed(trailers, flags = endStream) {
  return (stream, id, random) => {
    const body = `t${id}`;
    const fields = [...pseudo(id, "POST"), ["x-id", id]];
    return {
      method: "POST",
      body,
      frames: [...head(stream, fields, 0, random), data(stream, body), ...head(stream, trailers, flags, random)],
    };
  };
}

const without = (name) => (fields) => fields.filter(([one]) => one !== name);
const withValue = (name, value) => (fields) => fields.map((field) => (field[0] === name ? [name, value] : field));
const cut = (made, count, last) => (stream, id, random) => {
  const message = made(stream, id, random);
  return { ...message, frames: [...message.frames.slice(0, count), ...(last ? [last(stream)] : [])], isCut: true };
};
const raw = (frames) => (stream) => ({ method: "GET", body: "", frames: frames(stream), isCut: true });

const made = (from, build, isFatal = false) => ({ from, build, isFatal });
const good = (build) => made("backend", build);
const bad = (build) => made("gateway", build);
/** The field alone may be omitted, so that the backend does not receive it. */
const dropped = (build) => ({ ...made("either", build), unseen: ["a", "a b", "x-a", "x-c"] });
const fatal = (build) => made("either", build, true);

/**
 * Later versions of Node treat DATA beyond the declared length as a connection error, as they may (RFC 9113, 5.4.1).
 */
const ENDS_CONNECTIONS = Number(process.versions.node.split(".")[0]) > 20;

/** By name: weights are equal, valid ones are there several times. */
export const HTTP2_KINDS = {
  get: good(get()),
  "get, slow": good(get([["x-reply", "slow"]])),
  "get, large answer": good(get([["x-reply", "large"]])),
  "get, chunked answer": good(get([["x-reply", "chunked"]])),
  "get, cookie crumbs": good(get(Array.from({ length: 20 }, (_, i) => ["cookie", `c${i}=${i}`]))),
  "get, te trailers": good(get([["te", "trailers"]])),
  "get, the same host": good(get([["host", "a.example"]])),
  "get, host alone": good(get([["host", "a.example"]], without(":authority"))),
  post: good(post()),
  "post, length": good(post((body) => body.length)),
  "post, trailers": good(trailed([["x-checksum", "1"]])),
  "backend cuts": made("either", get([["x-reply", "cut"]])),
  "expect continue": good(post((body) => body.length, [["expect", "100-continue"]])),
  "wrong length, short": made("either", post((body) => body.length + 5)),
  "wrong length, long": made("either", post((body) => Math.max(0, body.length - 2)), ENDS_CONNECTIONS),
  "two lengths": bad(post((body) => body.length, [["content-length", "7"]])),
  "odd length": bad(post(() => "+5")),
  "transfer-encoding": bad(post(undefined, [["transfer-encoding", "chunked"]])),
  "connection header": bad(get([["connection", "close"]])),
  "keep-alive header": bad(get([["keep-alive", "1"]])),
  "upgrade header": bad(get([["upgrade", "websocket"]])),
  "te gzip": bad(get([["te", "gzip"]])),
  "another host": bad(get([["host", "b.example"]])),
  "two hosts": bad(get([["host", "a.example"], ["host", "b.example"]], without(":authority"))), // biome-ignore format: a table
  "no authority": made("either", get([], without(":authority"))),
  "authority with user": bad(get([], withValue(":authority", "u:p@a.example"))),
  "authority with space": bad(get([], withValue(":authority", "a example"))),
  "authority with slash": bad(get([], withValue(":authority", "a.example/x"))),
  "no path": bad(get([], without(":path"))),
  "empty path": bad(get([], withValue(":path", ""))),
  "path without slash": bad(get([], withValue(":path", "b/x"))),
  "absolute path": bad(get([], withValue(":path", "http://a.example/b/x"))),
  "path with space": bad(get([], (fields) => withValue(":path", `${fields[3][1]} x`)(fields))),
  "path with line": bad(get([], (fields) => withValue(":path", `${fields[3][1]}\r\nx-a: b`)(fields))),
  "path with fragment": bad(get([], (fields) => withValue(":path", `${fields[3][1]}#x`)(fields))),
  "path with 8 bits": bad(get([], (fields) => withValue(":path", `${fields[3][1]}\xe9`)(fields))),
  "no method": bad(get([], without(":method"))),
  "method with space": bad(get([], withValue(":method", "GET /x"))),
  "method with line": bad(get([], withValue(":method", "GET\r\nx"))),
  "empty method": bad(get([], withValue(":method", ""))),
  "no scheme": bad(get([], without(":scheme"))),
  "odd scheme": made("either", get([], withValue(":scheme", "ftp"))),
  "unknown pseudo": bad(get([[":x", "1"]])),
  "status pseudo": bad(get([[":status", "200"]])),
  "late pseudo": bad(get([[":path", "/b/other"]], without(":path"))),
  "path twice": bad(get([], (fields) => [...fields, [":path", "/b/other"]])),
  "upper case": dropped(get([["X-A", "b"]])),
  "empty name": dropped(get([["", "b"]])),
  "name with colon": dropped(get([["a:b", "c"]])),
  "name with space": dropped(get([["a b", "c"]])),
  "name with line": dropped(get([["a\r\nb", "c"]])),
  "value with line": dropped(get([["x-a", "b\r\nx-c: d"]])),
  "value with zero": dropped(get([["x-a", "b\0c"]])),
  "value with spaces around": made("either", get([["x-a", " b "]])),
  "long value": made("either", get([["x-a", "a".repeat(9_000)]])),
  "many fields": made("either", get(Array.from({ length: 300 }, (_, i) => [`x-${i}`, "1"]))),
  connect: bad(get([], (fields) => [[":method", "CONNECT"], fields[2]])),
  "extended connect": bad(get([[":protocol", "websocket"]], withValue(":method", "CONNECT"))),
  "trailers with a path": made("either", trailed([[":path", "/x"]])),
  "trailers with a length": made("either", trailed([["content-length", "3"]])),
  "trailers with host": made("either", trailed([["host", "b.example"]])),
  "trailers that do not end": made("either", trailed([["x-a", "b"]], 0)),
  "reset in the body": made("either", cut(post(), 2, (stream) => frame(TYPE.reset, 0, stream, number(8)))),
  "reset at once": made("either", cut(get(), 1, (stream) => frame(TYPE.reset, 0, stream, number(8)))),
  "body that stops": made("either", cut(post(), 2)),
  "data after the end": made("either", (stream, id, random) => {
    const message = get()(stream, id, random);
    return { ...message, frames: [...message.frames, data(stream, "late")] };
  }, true),
  "head twice": made("either", (stream, id, random) => {
    const message = get()(stream, id, random);
    return { ...message, frames: [...message.frames, ...get()(stream, id, random).frames] };
  }, true),
  "window of nothing": made("either", (stream, id, random) => {
    const message = get([["x-reply", "slow"]])(stream, id, random);
    return { ...message, frames: [...message.frames, frame(TYPE.window, 0, stream, number(0))] };
  }, true),
  "window too large": made("either", (stream, id, random) => {
    const message = get([["x-reply", "slow"]])(stream, id, random);
    return { ...message, frames: [...message.frames, frame(TYPE.window, 0, stream, number(2 ** 31 - 1))] };
  }, true),
  "bad padding": fatal(raw((stream) => [frame(TYPE.headers, endHeaders | endStream | padded, stream, Buffer.from([200, 0]))])),
  "broken fields": fatal(raw((stream) => [frame(TYPE.headers, endHeaders | endStream, stream, Buffer.from([0, 127, 255, 255, 255, 255, 255]))])),
  "field index too large": fatal(raw((stream) => [frame(TYPE.headers, endHeaders | endStream, stream, Buffer.from([255, 255, 10]))])),
  "data on a new stream": fatal(raw((stream) => [data(stream, "x", endStream)])),
  "data on no stream": fatal(raw(() => [data(0, "x")])),
  "head on no stream": fatal(raw(() => [frame(TYPE.headers, endHeaders, 0, fieldBlock([[":method", "GET"]]))])),
  "even stream": fatal(raw((stream) => [frame(TYPE.headers, endHeaders | endStream, stream + 1, fieldBlock(pseudo("x")))])),
  "lone continuation": fatal(raw((stream) => [frame(TYPE.continuation, endHeaders, stream)])),
  "push promise": fatal(raw((stream) => [frame(TYPE.push, endHeaders, stream, number(stream + 2))])),
  "short ping": fatal(raw(() => [frame(TYPE.ping, 0, 0, Buffer.alloc(3))])),
  "odd settings": fatal(raw(() => [frame(TYPE.settings, 0, 0, Buffer.alloc(5))])),
  "settings with a bad window": fatal(raw(() => [frame(TYPE.settings, 0, 0, Buffer.concat([Buffer.from([0, 4]), number(2 ** 32 - 1)]))])),
  "long frame": fatal(raw((stream) => [frame(TYPE.data, 0, stream, Buffer.alloc(20_000))])),
  "goaway from the client": fatal(raw(() => [frame(TYPE.goaway, 0, 0, number(0, 0))])),
  "reset of an idle stream": fatal(raw((stream) => [frame(TYPE.reset, 0, stream, number(8))])),
  "depends on itself": fatal(raw((stream) => [frame(TYPE.priority, 0, stream, Buffer.concat([number(stream), Buffer.from([1])]))])),
  noise: made("gateway", raw((stream) => [
    frame(TYPE.ping, 0, 0, Buffer.alloc(8)), frame(0xfa, 0xff, 0, Buffer.from("unknown")), frame(TYPE.settings, 0, 0),
    frame(TYPE.priority, 0, stream, Buffer.concat([number(0), Buffer.from([1])])), frame(TYPE.window, 0, 0, number(1)),
  ])),
}; // biome-ignore format: a table

export function messageOf(kind, stream, id, random) {
  const { from, isFatal, build, unseen = [] } = HTTP2_KINDS[kind];
  const built = build(stream, id, random);
  return { ...built, kind, from, isFatal, unseen, stream, id, hash: hashOf(built.body), times: 0 };
}
