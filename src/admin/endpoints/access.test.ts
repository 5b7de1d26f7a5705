import assert from "node:assert/strict";
import { test } from "node:test";
import type { Topology } from "../../core/topology.ts";
import type { AdminSink } from "../server/endpoint.ts";
import { accessEndpoint } from "./access.ts";

test("a review is sent in pieces, so that a large one does not delay requests", async () => {
  const endpoint = accessEndpoint({
    topology: () => ({}) as Topology,
    review: async () => ({ ok: true, review: ['{"items":[1', ",2]}"], after: ['{"items":[]}'] }),
    isBusy: () => false,
  });
  const response = await endpoint.POST?.({
    method: "POST",
    path: "/debug/access",
    query: new URLSearchParams(),
    body: async () => Buffer.from('{"items":["tool:files/read"]}'),
  });
  assert.ok(response !== undefined && "stream" in response);
  const chunks: string[] = [];
  await new Promise<void>((resolve) => {
    const sink: AdminSink = {
      write: (chunk) => chunks.push(String(chunk)) > 0,
      end: resolve,
      onClose: () => undefined,
      bufferedBytes: () => 0,
    };
    response.stream(sink);
    assert.ok(chunks.length < 4);
  });
  assert.ok(chunks.length >= 4);
  assert.deepEqual(JSON.parse(chunks.join("")), { review: { items: [1, 2] }, after: { items: [] }, problems: [] });
});
