import assert from "node:assert/strict";
import { test } from "node:test";
import { PEER_INPUTS, PeerInput, peerInput } from "./peer-inputs.ts";

test("every input names its peer, and no two inputs have the same ID", () => {
  for (const { id } of PEER_INPUTS) assert.match(id, /^[a-z0-9-]+\/[a-z0-9-]+$/);
  assert.equal(new Set(PEER_INPUTS.map(({ id }) => id)).size, PEER_INPUTS.length);
});

test("every input has a finite size, and limits that are positive integers, except for depths without a limit", () => {
  for (const { id, limits, maxBytes } of PEER_INPUTS) {
    assert.ok(Number.isInteger(maxBytes), id);
    for (const [name, limit] of Object.entries(limits)) {
      if (name === "depth" && limit === Number.POSITIVE_INFINITY) continue;
      const value = typeof limit === "object" ? limit.ceiling : limit;
      assert.ok(Number.isInteger(value) && value > 0, id);
    }
  }
});

test("an input with a setting can be limited to the value of the setting, and not above the ceiling", () => {
  const input = peerInput("mcp-server/stdio-message");
  assert.equal(input.maxBytes, 256 * 1024 * 1024);
  const limited = input.upTo(1024);
  assert.equal(limited.id, input.id);
  assert.equal(limited.maxBytes, 1024);
  assert.equal(limited.maxDepth, input.maxDepth);
  assert.equal(input.upTo(input.maxBytes), input);
  assert.throws(() => input.upTo(input.maxBytes + 1), /mcp-server\/stdio-message/);
});

test("a limit of items can only become smaller", () => {
  const input = peerInput("guard-service/verdict");
  assert.equal(input.upToItems(10).maxItems, 10);
  assert.equal(input.upToItems(input.maxItems + 1).maxItems, input.maxItems);
});

test("only the list can create an input", () => {
  // @ts-expect-error: the constructor is private
  const create = (): unknown => new PeerInput("client/made-up", "JSON", { bytes: 1 }, "stream");
  assert.equal(typeof create, "function");
  // @ts-expect-error: the ID is not in the list
  assert.equal(peerInput("client/made-up"), undefined);
  // @ts-expect-error: a copy is not an input
  const copy: PeerInput = { ...peerInput("client/token"), peer: "client", upTo: () => peerInput("client/token") };
  assert.notEqual(copy, peerInput("client/token"));
  // @ts-expect-error: the reader of an input is part of its type
  const other: PeerInput<"YAML"> = peerInput("client/token");
  assert.equal(other.reader, "JWT");
});
