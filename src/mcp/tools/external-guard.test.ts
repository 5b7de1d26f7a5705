import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MessagePool } from "../../base/memory-budget.ts";
import { nextTurn } from "../../base/sliced-work.ts";
import type { GuardInput, GuardWebhook } from "../../llm/guards/guard-services.ts";
import { GuardRejection } from "../../llm/guards/guarded-text.ts";
import { asServerMessage, notificationText, resultText, type ServerMessage } from "../protocol/json-rpc.ts";
import { GuardQueue } from "./external-guard.ts";

const MIB = 1024 * 1024;

interface Pending {
  readonly input: GuardInput;
  pass(): void;
  mask(...texts: string[]): void;
  reject(message: string): void;
}

function setUp({ pool = new MessagePool(MIB, fakeClock()) } = {}) {
  const asked: Pending[] = [];
  const guard: GuardWebhook = {
    check: (input) =>
      new Promise((resolve, reject) => {
        asked.push({
          input,
          pass: () => resolve(input.texts),
          mask: (...texts) => resolve(texts),
          reject: (message) => reject(new GuardRejection({ rejection: { status: 403, message } })),
        });
      }),
  };
  const checks = { pending: 0 };
  const queue = new GuardQueue({ guards: [guard], refusal: "no" }, { name: "files", messages: pool.server() }, checks);
  const delivered: (string | undefined)[] = [];
  const reports: string[] = [];
  return {
    asked,
    checks,
    queue,
    delivered,
    reports,
    check(message: ServerMessage, method = message.method ?? "tools/call") {
      const report = (result: string): void => void reports.push(result);
      queue.check(message, { method, tool: undefined, report }, (passed) => delivered.push(passed?.text));
    },
  };
}

const result = (value: unknown): ServerMessage => asServerMessage(resultText("0", JSON.stringify(value)));
const text = (...texts: string[]): object => ({ content: texts.map((one) => ({ type: "text", text: one })) });
const progress = (message?: string): ServerMessage =>
  asServerMessage(
    notificationText("notifications/progress", JSON.stringify({ progressToken: "t", progress: 1, message })),
  );

test("messages keep their order while a check is pending", async () => {
  const { asked, check, delivered, checks, queue } = setUp();
  check(progress());
  assert.equal(delivered.length, 1, "a message without text is delivered immediately");
  check(progress("one"));
  check(progress());
  check(result(text("two")));
  queue.afterwards(() => delivered.push("last"));
  await nextTurn();
  assert.deepEqual([asked.length, delivered.length, checks.pending], [1, 1, 4]);
  asked[0]?.pass();
  await nextTurn();
  assert.deepEqual([asked.length, delivered.length], [2, 3]);
  asked[1]?.mask("2");
  await nextTurn();
  assert.deepEqual(delivered.slice(3), [result(text("2")).text, "last"]);
  assert.equal(checks.pending, 0);
});

test("a guard receives the texts of a message, but no words of the protocol", async () => {
  const { asked, check } = setUp();
  const blob = Buffer.from("a file").toString("base64");
  check(
    result({
      ...text("one ", "text"),
      structuredContent: { key: ["value", 1], type: "text" },
      resource: { uri: "file:///a", mimeType: "text/plain", blob },
    }),
  );
  await nextTurn();
  assert.deepEqual(asked[0]?.input, {
    direction: "response",
    model: undefined,
    texts: ["one text", "key", "value", "file:///a", "text/plain", blob, "a file"],
    mcp: { target: "files", method: "tools/call", tool: undefined },
  });
});

test("a rejected result becomes an error, and a rejected notification is dropped", async () => {
  const { asked, check, delivered, reports } = setUp();
  check(result(text("bad")));
  check(result({ contents: [{ text: "bad" }] }), "resources/read");
  check(progress("bad"));
  for (let i = 0; i < 3; i++) {
    await nextTurn();
    asked[i]?.reject("not this");
  }
  await nextTurn();
  assert.match(delivered[0] ?? "", /"text":"not this"}],"isError":true/);
  assert.match(delivered[1] ?? "", /"error":{"code":-32603,"message":"not this"}/);
  assert.equal(delivered[2], undefined);
  assert.deepEqual([delivered.length, reports], [3, ["rejected", "rejected", "rejected"]]);
});

test("the number of waiting notifications is limited, and results always wait", async () => {
  const { asked, check, delivered } = setUp();
  for (let i = 0; i < 65; i++) check(progress(`step ${i}`));
  assert.deepEqual(delivered, [undefined], "the last notification is dropped");
  check(result(text("done")));
  for (let i = 0; i < 65; i++) {
    await nextTurn();
    asked[i]?.pass();
  }
  await nextTurn();
  assert.equal(delivered.length, 66);
  assert.match(delivered.at(-1) ?? "", /done/);
});

test("a closed queue delivers nothing and calls no guard", async () => {
  const { asked, check, delivered, queue, checks } = setUp();
  check(result(text("one")));
  check(result(text("two")));
  await nextTurn();
  queue.close();
  asked[0]?.pass();
  await nextTurn();
  check(progress());
  assert.deepEqual(delivered, [undefined, undefined, undefined]);
  assert.deepEqual([asked.length, checks.pending], [1, 0]);
});

test("a result is rejected if the results that wait for guards of all servers need too much memory", async () => {
  const pool = new MessagePool(1_000, fakeClock());
  const [one, other] = [setUp({ pool }), setUp({ pool })];
  const large = result(text("x".repeat(200)));
  one.check(large);
  other.check(large);
  assert.deepEqual([one.delivered.length, other.reports], [0, ["rejected"]]);
  assert.match(other.delivered[0] ?? "", /"text":"no"}],"isError":true/);
  await nextTurn();
  one.asked[0]?.pass();
  await nextTurn();
  assert.deepEqual([one.delivered, pool.usedBytes], [[large.text], 0]);
  other.check(large);
  other.queue.close();
  await nextTurn();
  other.asked[0]?.pass();
  await nextTurn();
  assert.deepEqual([other.asked.length, other.delivered[1], pool.usedBytes], [0, undefined, 0]);
});

test("a result that is larger than the limit is checked if no other one waits", async () => {
  const { asked, check, delivered } = setUp({ pool: new MessagePool(1, fakeClock()) });
  check(result(text("one")));
  await nextTurn();
  asked[0]?.pass();
  await nextTurn();
  assert.deepEqual(delivered, [result(text("one")).text]);
});
