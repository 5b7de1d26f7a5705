import assert from "node:assert/strict";
import { test } from "node:test";
import { asServerMessage } from "../protocol/json-rpc.ts";
import { handshakeRefusal, readDiscovered, readInitialized } from "./upstream.ts";

const answerWith = (experimental: string) =>
  asServerMessage(
    `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","supportedVersions":["2026-07-28"],"capabilities":{"experimental":${experimental}}}}`,
  );

test("a server description may have any content", () => {
  const answer = answerWith('{"a":1}');
  assert.deepEqual(readInitialized(answer)?.capabilities, { experimental: { a: 1 } });
  assert.ok(readDiscovered(answer));
});

test("a huge server description is rejected with the reason, without parsing it", () => {
  for (const experimental of [
    `{"a":[${"{},".repeat(30_000)}1]}`,
    `${"[".repeat(60_000)}${"]".repeat(60_000)}`,
    `"${"a".repeat(1024 * 1024)}"`,
    " ".repeat(1024 * 1024),
  ]) {
    const answer = answerWith(experimental);
    assert.equal(readInitialized(answer), undefined);
    assert.equal(readDiscovered(answer), undefined);
    assert.equal(handshakeRefusal(answer), "answered initialize with more than 1 MiB or 20000 values and names");
  }
});
