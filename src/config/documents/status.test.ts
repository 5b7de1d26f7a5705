import assert from "node:assert/strict";
import { test } from "node:test";
import { GATEWAY_API_GROUP, type ObjectReference, POLICY_API_GROUP } from "./documents.ts";
import { ACCEPTED, conditionMessage, statusOf } from "./status.ts";

const policy: ObjectReference = { group: POLICY_API_GROUP, kind: "GatewayPolicy", namespace: "default", name: "p" };
const gateway = (name: string): ObjectReference => ({
  group: GATEWAY_API_GROUP,
  kind: "Gateway",
  namespace: "default",
  name,
});

test("a target that failed comes first", () => {
  const missing = { isTrue: false, reason: "TargetNotFound", message: "Gateway default/z was not found" };
  const ancestors = statusOf(
    policy,
    { accepted: ACCEPTED, isAttached: true },
    [
      { reference: gateway("a"), gateways: [gateway("a")], missing: undefined },
      { reference: gateway("z"), gateways: [], missing },
    ],
    { generation: 1, nowMs: 0, previous: undefined },
  );
  assert.deepEqual(
    ancestors.map(({ ancestorRef }) => ancestorRef.name),
    ["z", "a"],
  );
});

test("a message is cut to what an API server takes, between characters", () => {
  assert.equal(conditionMessage("ä".repeat(16_384)), "ä".repeat(16_384));
  const cut = conditionMessage(`x${"ä".repeat(20_000)}`);
  assert.ok(Buffer.byteLength(cut) <= 32_768);
  assert.match(cut, /ä … \(cut\)$/);
});
