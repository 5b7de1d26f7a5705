import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageChannel } from "node:worker_threads";
import { type AdminEndpoint, type AdminResponse, type AdminSink, textResponse } from "../server/endpoint.ts";
import { mergeStreams } from "./merge-streams.ts";
import { handleRemote, readRemote } from "./remote-call.ts";

function ask(endpoints: readonly AdminEndpoint[], path: string, method = "GET"): Promise<AdminResponse> {
  const { port1, port2 } = new MessageChannel();
  const response = readRemote(port1);
  void handleRemote({ method, path, query: "a=1&b=x%20y", body: Buffer.from("body") }, endpoints, port2);
  return response;
}

function sink() {
  const written: string[] = [];
  let close: (() => void) | undefined;
  let ended: () => void = () => undefined;
  const end = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const reader: AdminSink = {
    write: (chunk) => written.push(String(chunk)) > 0,
    end: ended,
    onClose(callback) {
      close = callback;
    },
    bufferedBytes: () => 0,
  };
  return { reader, written, end, close: () => close?.() };
}

test("a value is returned unchanged, and the request is passed on", async () => {
  const endpoint: AdminEndpoint = {
    path: "/x",
    doc: "",
    POST: async ({ query, body }) => ({
      status: 201,
      type: "text/plain",
      body: `${query.get("b")} ${await body()}`,
      headers: { a: "b" },
    }),
  };
  const expected = { status: 201, type: "text/plain", headers: { a: "b" }, body: "x y body" };
  assert.deepEqual(await ask([endpoint], "/x", "POST"), expected);
  assert.equal((await ask([endpoint], "/x")).status, 404);
  assert.equal((await ask([endpoint], "/y")).status, 404);
});

test("an endpoint that throws is a 500, and a thread that ends a 503", async () => {
  const failing: AdminEndpoint = {
    path: "/x",
    doc: "",
    GET: () => {
      throw new Error("no");
    },
  };
  assert.deepEqual(await ask([failing], "/x"), textResponse(500, "no\n"));
  const { port1, port2 } = new MessageChannel();
  const response = readRemote(port1);
  port2.close();
  assert.equal((await response).status, 503);
});

test("a stream starts when it is read, and its end is delivered", async () => {
  const endpoint: AdminEndpoint = {
    path: "/x",
    doc: "",
    GET: () => ({
      status: 200,
      type: "text/event-stream",
      stream(to) {
        to.write("one");
        to.write(Buffer.from("two"));
        to.end();
      },
    }),
  };
  const response = await ask([endpoint], "/x");
  assert.ok("stream" in response);
  const { reader, written, end } = sink();
  response.stream(reader);
  await end;
  assert.deepEqual(written, ["one", "two"]);
});

test("a disconnect of the reader reaches the other thread", async () => {
  const left = new Promise<void>((resolve) => {
    const endpoint: AdminEndpoint = {
      path: "/x",
      doc: "",
      GET: () => ({ status: 200, type: "text/plain", stream: (to) => to.onClose(resolve) }),
    };
    void ask([endpoint], "/x").then((response) => {
      const { reader, close } = sink();
      if ("stream" in response) response.stream(reader);
      close();
    });
  });
  await left;
});

test("streams of several threads are merged: one ready comment when all are ready, and the first end ends all", () => {
  const sinks: AdminSink[] = [];
  const closed: number[] = [];
  const responses = [1, 2].map(
    (number): AdminResponse => ({
      status: 200,
      type: "text/event-stream",
      stream(to) {
        sinks.push(to);
        to.onClose(() => closed.push(number));
      },
    }),
  );
  const merged = mergeStreams(responses);
  assert.ok("stream" in merged);
  const { reader, written } = sink();
  merged.stream(reader);
  const [one, two] = sinks;
  one?.write(": armed\n\n");
  assert.deepEqual(written, []);
  two?.write(": armed\n\n");
  two?.write("data: 2\n\n");
  one?.write("data: 1\n\n");
  two?.end();
  one?.write("data: late\n\n");
  assert.deepEqual(written, [": armed\n\n", "data: 2\n\n", "data: 1\n\n"]);
  assert.deepEqual(closed, [1, 2]);
});

test("a rejection by one thread rejects the whole request", () => {
  const closed: string[] = [];
  const stream: AdminResponse = {
    status: 200,
    type: "text/plain",
    stream: (to) => to.onClose(() => closed.push("closed")),
  };
  assert.deepEqual(mergeStreams([stream, textResponse(429, "full\n")]), textResponse(429, "full\n"));
  assert.deepEqual(closed, ["closed"]);
});
