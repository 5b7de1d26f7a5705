import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MemoryAccount, MemoryPool } from "../../base/memory-budget.ts";
import type { ProcessorStream, StepReceiver } from "./client.ts";
import { Processing } from "./processing.ts";
import type { ProcessingResponse } from "./protocol.ts";

const MODES = {
  requestHeaders: true,
  responseHeaders: false,
  requestBody: "fullDuplexStreamed",
  responseBody: "none",
} as const;

/** A processor that replaces the request body by the parts. */
function replaceBody(parts: readonly string[], poolBytes: number, maxBodyBytes: number) {
  let receiver: StepReceiver | undefined;
  let isOver = false;
  const failures: string[] = [];
  const stream: ProcessorStream = {
    send: () => Promise.resolve(undefined),
    receive: (_step, to) => {
      receiver = to;
    },
    async write() {
      for (const [i, part] of parts.entries()) if (!isOver) receiver?.response(streamed(part, i === parts.length - 1));
    },
    fail(error) {
      isOver = true;
      receiver?.ended(error);
    },
    close: () => undefined,
  };
  const pool = new MemoryPool(poolBytes, poolBytes);
  const processing = new Processing(stream, MODES, {
    clock: fakeClock(),
    timeoutMs: 1_000,
    allowModeOverride: false,
    maxBodyBytes,
    memory: new MemoryAccount(pool, "client"),
    events: { failed: (error) => void failures.push(error.message), processed: () => undefined },
  });
  return { processing, pool, failures };
}

function streamed(body: string, endOfStream: boolean): ProcessingResponse {
  const bodyMutation = { streamedResponse: { body: Buffer.from(body), endOfStream } };
  return { requestBody: { response: { bodyMutation } } } as unknown as ProcessingResponse;
}

for (const [what, poolBytes, maxBodyBytes] of [
  ["the memory of the client", 10, 1_000],
  ["the limit of a body", 1_000, 10],
] as const)
  for (const parts of [["123456789", "ab"], ["123456789", "ab", "c"], ["12345678901"], ["1", "2345678901", ""]])
    test(`a new body of ${parts.map(({ length }) => length).join("+")} bytes that exceeds ${what} is a failure`, async () => {
      const { processing, pool, failures } = replaceBody(parts, poolBytes, maxBodyBytes);
      assert.equal(await processing.wholeBody(Buffer.from("old")), undefined);
      assert.equal(failures.length, 1);
      assert.equal(pool.usedBytes, 0);
    });

test("a new body is charged until the processing is closed", async () => {
  const { processing, pool } = replaceBody(["12345", "67890"], 10, 10);
  const answer = await processing.wholeBody(Buffer.from("old"));
  assert.equal(String(answer?.changes?.body), "1234567890");
  assert.equal(pool.usedBytes, 10);
  processing.close();
  assert.equal(pool.usedBytes, 0);
});
