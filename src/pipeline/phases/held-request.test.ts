import assert from "node:assert/strict";
import { test } from "node:test";
import { TestBody } from "../../../test/support/body-source.ts";
import { anExchange } from "../../../test/support/exchange.ts";
import { GatewayError } from "../../core/errors.ts";
import { HeldRequest } from "./pipeline.ts";

function setup(length?: number) {
  const exchange = anExchange({ method: "POST" });
  const stream = new TestBody();
  exchange.request.body = { kind: "stream", stream, length, taken: false };
  const state = { asked: 0, isDone: false, failures: [] as unknown[] };
  let failed: () => void = () => undefined;
  const failure = new Promise<void>((resolve) => {
    failed = resolve;
  });
  const waiter = {
    get isDone() {
      return state.isDone;
    },
    fail(error: unknown) {
      state.failures.push(error);
      failed();
    },
  };
  const sink = {
    askForBody() {
      state.asked += 1;
    },
  };
  return { exchange, stream, state, failure, held: new HeldRequest(exchange, sink, waiter) };
}

function bytesOf({ request }: ReturnType<typeof anExchange>): string | undefined {
  return request.body.kind === "bytes" ? request.body.bytes.toString() : undefined;
}

test("a small body is held once and used by every attempt; changes of an attempt are discarded", async () => {
  const { exchange, stream, held, state } = setup(5);
  held.remember();
  const reading = new Promise<void>((resolve) => held.holdSmall(resolve));
  stream.write("he");
  stream.finish("llo");
  await reading;
  assert.equal(state.asked, 1);
  held.restore();
  exchange.request.path = "/changed";
  exchange.request.headers.set("x-attempt", "1");
  held.restore();
  assert.equal(bytesOf(exchange), "hello");
  assert.equal(exchange.request.path, "/");
  assert.equal(exchange.request.headers.get("x-attempt"), undefined);
});

test("a large body, or one of unknown length, stays a stream, and no 100 Continue is sent", () => {
  for (const length of [64 * 1024 + 1, undefined]) {
    const { exchange, held, state } = setup(length);
    let passed = false;
    held.holdSmall(() => {
      passed = true;
    });
    assert.ok(passed);
    assert.equal(exchange.request.body.kind, "stream");
    assert.equal(state.asked, 0);
  }
});

test("a body over the limit is rejected with 413: immediately by its length, else when the limit is passed", async () => {
  const announced = setup(11);
  assert.throws(
    () => announced.held.hold(10, () => assert.fail("never")),
    (error) => error instanceof GatewayError && error.status === 413,
  );
  assert.equal(announced.state.asked, 0);
  const streamed = setup();
  streamed.held.hold(10, () => assert.fail("never"));
  streamed.stream.write("twelve bytes");
  await streamed.failure;
  assert.equal((streamed.state.failures[0] as GatewayError).status, 413);
});

test("a body that ends early is the client's fault, and nothing is reported after the exchange is over", async () => {
  const early = setup(10);
  early.held.hold(100, () => assert.fail("never"));
  early.stream.finish("short");
  await early.failure;
  assert.equal((early.state.failures[0] as GatewayError).status, 400);
  const late = setup(5);
  late.held.holdSmall(() => assert.fail("never"));
  late.state.isDone = true;
  late.stream.abort();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(late.state.failures, []);
});

test("a peek leaves the body in its stream; an empty body is held", async () => {
  const { exchange, stream, held } = setup();
  stream.finish("{}");
  const first = await new Promise<Buffer | undefined>((resolve) => held.peek(resolve));
  assert.equal(first?.toString(), "{}");
  assert.equal(exchange.request.body.kind, "stream");
  assert.equal(await new Promise((resolve) => held.hold(10, () => resolve(bytesOf(exchange)))), "{}");
});

test("an exception after a body was read becomes a failure", async () => {
  const { stream, held, state, failure } = setup(2);
  held.holdSmall(() => {
    throw new Error("a defect");
  });
  stream.finish("ok");
  await failure;
  assert.equal((state.failures[0] as Error).message, "a defect");
});
