import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { createReplicaReports } from "./peer-reports.ts";

const ACK = { version: "1", isServed: true, problems: [], refused: [] };
const GATEWAY = "infra/edge";
const A_LONG_TIME_MS = 120_000;

test("a leader keeps the acknowledgment of its stream when the replica that received it is gone", async () => {
  const clock = fakeClock();
  const leader = createReplicaReports(clock, () => [{ id: "stream", gateway: GATEWAY }]);
  leader.received("other", { streams: [], acks: [{ stream: "stream", sequence: 1, ack: ACK }] });
  await clock.advance(A_LONG_TIME_MS);
  assert.deepEqual(leader.instances(GATEWAY), [{ ack: ACK }]);
});

test("a leader keeps the acknowledgment of a stream that another replica reports, until the stream ends", async () => {
  const clock = fakeClock();
  const leader = createReplicaReports(clock, () => []);
  const report = { streams: [{ id: "stream", gateway: GATEWAY }], acks: [] };
  leader.acknowledged("stream", 1, ACK);
  for (let waitedMs = 0; waitedMs < A_LONG_TIME_MS; waitedMs += 5_000) {
    leader.received("other", report);
    await clock.advance(5_000);
  }
  assert.deepEqual(leader.instances(GATEWAY), [{ ack: ACK }]);
  await clock.advance(A_LONG_TIME_MS);
  assert.deepEqual(leader.instances(GATEWAY), []);
  leader.received("other", report);
  assert.deepEqual(leader.instances(GATEWAY), [{ ack: undefined }], "the old acknowledgment is forgotten");
});

test("an older acknowledgment does not replace a newer one", () => {
  const leader = createReplicaReports(fakeClock(), () => [{ id: "stream", gateway: GATEWAY }]);
  leader.acknowledged("stream", 2, { ...ACK, version: "2" });
  leader.received("other", { streams: [], acks: [{ stream: "stream", sequence: 1, ack: ACK }] });
  assert.equal(leader.instances(GATEWAY)[0]?.ack?.version, "2");
});
