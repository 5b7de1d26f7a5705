import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish } from "../../base/sliced-work.ts";
import { compileRegex } from "../../cel/functions/regex.ts";
import type { SseEvent } from "../../http/sse.ts";
import { GuardedText, GuardRejection, guardParts } from "./guarded-text.ts";
import { createStreamGuard, TooManyChannels } from "./stream-guard.ts";
import { compileTextGuard } from "./text-guard.ts";

const PATTERN = peerInput("file/pattern");

const GUARDS = [compileTextGuard("mask", [{ pattern: "(?i)secret-\\d+" }], { status: 403, message: "no" })];

function run(events: readonly (object | string)[], guards = GUARDS): SseEvent[] {
  const guard = createStreamGuard(guards);
  const out: SseEvent[] = [];
  for (const event of events) {
    const name = (event as { type?: string }).type ?? "message";
    const data = typeof event === "string" ? event : JSON.stringify(event);
    out.push(...finish(guard.event({ event: name, data, id: "7", retry: undefined })));
  }
  return [...out, ...finish(guard.end())];
}
const parsed = (events: readonly SseEvent[]): unknown[] =>
  events.map(({ data }) => (data.startsWith("{") ? JSON.parse(data) : data));

test("the rest of a channel is sent in a separate event that repeats no id, role or usage", () => {
  const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "m" };
  const usage = { total_tokens: 1 };
  const call = { index: 1, id: "call_1", type: "function", function: { name: "f", arguments: '{"a":' } };
  const out = parsed(
    run([
      {
        ...chunk,
        usage,
        choices: [{ index: 0, delta: { role: "assistant", tool_calls: [call] }, finish_reason: null }],
      },
      { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
      "[DONE]",
    ]),
  );
  assert.deepEqual(out, [
    {
      ...chunk,
      usage,
      choices: [
        {
          index: 0,
          delta: {
            role: "assistant",
            tool_calls: [{ index: 1, id: "call_1", type: "function", function: { name: "f", arguments: "" } }],
          },
          finish_reason: null,
        },
      ],
    },
    {
      ...chunk,
      choices: [
        {
          index: 0,
          delta: { tool_calls: [{ index: 1, type: "function", function: { arguments: '{"a":' } }] },
          finish_reason: null,
        },
      ],
    },
    { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
    "[DONE]",
  ]);
});

test("the rest of a block is sent under the event name of its deltas, before the block stops", () => {
  const delta = (text: string) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } });
  const stop = { type: "content_block_stop", index: 0 };
  const out = run([
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    delta("hi"),
    stop,
  ]);
  assert.deepEqual(
    out.map(({ event, id }) => `${event} ${id}`),
    ["content_block_start 7", "content_block_delta 7", "content_block_delta undefined", "content_block_stop 7"],
  );
  assert.deepEqual(parsed(out).slice(1), [delta(""), delta("hi"), stop]);
});

test("text in the event that ends a choice is not held", () => {
  const out = run([{ choices: [{ index: 0, delta: { content: "bye" }, finish_reason: "stop" }] }]);
  assert.deepEqual(parsed(out), [{ choices: [{ index: 0, delta: { content: "bye" }, finish_reason: "stop" }] }]);
});

test("names of tools are not held, and a match that continues in the next chunk is not completed", () => {
  const named = (name: string) => ({
    choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { name } }] } }],
  });
  assert.deepEqual(parsed(run([named("get_weather")])), [named("get_weather")]);
  assert.deepEqual(parsed(run([named("secret-"), named("123")])), [named("secret-"), named("<masked>")]);
});

test("an event without text passes unchanged", () => {
  for (const event of ['{ "type": "ping" }', '{"usage":{"total_tokens": 1.0},"choices":[]}', "[DONE]"])
    assert.deepEqual(
      run([event]).map(({ data }) => data),
      [event],
    );
});

test("data that is not a JSON object is guarded as text", () => {
  assert.deepEqual(
    run(["my secret-123", '["secret-4"]']).map(({ data }) => data),
    ["my <masked>", '["<masked>"]'],
  );
});

test("more texts than any model writes at once are an error", () => {
  const events = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ choices: [{ index, delta: { content: "x" } }] }));
  assert.equal(run(events(1_024)).length, 2_048);
  assert.throws(() => run(events(1_025)), TooManyChannels);
});

test("a match that never ends is masked once it exceeds the held text", () => {
  const guards = [compileTextGuard("mask", [{ pattern: "a+" }], { status: 403, message: "no" })];
  const events = Array.from({ length: 100 }, () => ({ choices: [{ index: 0, delta: { content: "a".repeat(100) } }] }));
  const text = run(events, guards)
    .map(({ data }) => (JSON.parse(data) as { choices: { delta: { content: string } }[] }).choices[0]?.delta.content)
    .join("");
  assert.match(text, /^(?:<masked>)+$/);
});

const someGuards = fc.array(
  fc.constantFrom(
    compileTextGuard("mask", [{ pattern: "secret-\\d+" }], { status: 403, message: "no" }),
    compileTextGuard("mask", [{ pattern: "x+y" }, { pattern: "\\b12\\b" }], { status: 403, message: "no" }),
    compileTextGuard("reject", [{ pattern: "-" }], { status: 403, message: "no" }),
    compileTextGuard("reject", [{ pattern: "\\b1+$" }], { status: 403, message: "no" }),
    compileTextGuard("reject", [{ pattern: "ret-1|^1" }], { status: 403, message: "no" }),
  ),
  { minLength: 1, maxLength: 3 },
);
const somePieces = fc.array(
  fc.constantFrom("s", "secret", "-", "1", "12", " ", "x", "y", "secret-1", "z".repeat(90), "\n"),
  { maxLength: 12 },
);

test("a text in chunks gets the same verdict and the same masks as the whole", () => {
  const seen = { rejected: 0, masked: 0, nothing: 0 };
  const outcome = (guard: () => string): string => {
    try {
      return guard();
    } catch (error) {
      assert.ok(error instanceof GuardRejection);
      return "rejected";
    }
  };
  fc.assert(
    fc.property(someGuards, somePieces, (guards, pieces) => {
      const text = pieces.join("");
      const whole = outcome(() => finish(guardParts([text], guards))[0] ?? "");
      const split = outcome(() => {
        const guarded = new GuardedText(guards);
        const released = pieces.map((piece) => finish(guarded.push(piece, false)));
        return released.join("") + finish(guarded.push("", true));
      });
      assert.equal(split, whole);
      seen[whole === "rejected" ? whole : whole === text ? "nothing" : "masked"] += 1;
    }),
    { numRuns: 2_000, seed: 1 },
  );
  assert.ok(Math.min(seen.rejected, seen.masked, seen.nothing) > 100, JSON.stringify(seen));
});

const PATTERNS = [
  "^$",
  "^\\s*$",
  "\\B",
  "\\b",
  "^",
  "$",
  "\\A\\z",
  "(?m)^$",
  "(?m)^",
  "(?m)$",
  "a*",
  "a*$",
  "^a*",
  "^a*$",
  "\\ba",
  "a\\b",
  "\\Ba",
  "a\\B",
  "\\Ba\\B",
  "^a",
  "a$",
  "(?m)^a$",
  "a|$b",
  "(?:^|\\s)a(?:\\s|$)",
  "\\s$",
  "[^a]",
];

test("the verdict of a rejecting guard on a stream is its verdict on the whole text", () => {
  const text = fc.array(fc.constantFrom("a", "b", " ", "\n", "aa", "é", "😀", "a".repeat(100), " ".repeat(200)), {
    minLength: 1,
    maxLength: 8,
  });
  const verdicts = { rejected: 0, passed: 0 };
  for (const pattern of PATTERNS) {
    const guards = [compileTextGuard("reject", [{ pattern }], { status: 403, message: "no" })];
    const regex = compileRegex(PATTERN, pattern);
    const rejects = (pieces: readonly string[]): boolean => {
      const guarded = new GuardedText(guards);
      try {
        for (const piece of pieces) finish(guarded.push(piece, false));
        finish(guarded.push("", true));
        return false;
      } catch (error) {
        assert.ok(error instanceof GuardRejection);
        return true;
      }
    };
    fc.assert(
      fc.property(text, (pieces) => {
        const whole = pieces.join("");
        const isMatch = regex.test(whole, { left: 1e6 });
        assert.equal(rejects([whole]), isMatch, "the whole text");
        assert.equal(rejects(pieces), isMatch, "in pieces");
        if (whole.length < 300) assert.equal(rejects([...whole]), isMatch, "in characters");
        verdicts[isMatch ? "rejected" : "passed"] += 1;
      }),
      { numRuns: 300, seed: 1 },
    );
  }
  assert.ok(Math.min(verdicts.rejected, verdicts.passed) > 1_000, JSON.stringify(verdicts));
});
