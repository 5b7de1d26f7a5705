import assert from "node:assert/strict";
import { test } from "node:test";
import { ADMIN_PATHS } from "../server/paths.ts";
import { viewerResponse } from "./viewer.ts";

const SECRET = 'jwt.email == "ann@secret.example"';

test("viewers of requests see neither reasons nor values, also of rules in shadow mode", () => {
  const failure = { code: "denied", source: "policy", message: "denied", detail: SECRET, rule: SECRET };
  const shadow = [{ policy: "authorization", reason: SECRET, rule: SECRET, values: { email: SECRET } }];
  const requests = [
    { id: "1", shadow },
    { id: "2", failure },
    { id: "3", failure, shadow },
  ];
  const response = { status: 200, headers: {}, body: Buffer.from(JSON.stringify({ requests })) };
  const shown = viewerResponse(ADMIN_PATHS.requests, response as never).body.toString();
  assert.ok(!shown.includes("secret.example"), shown);
  const policies = JSON.parse(shown).requests.map((one: { shadow?: { policy: string }[] }) => one.shadow?.[0]?.policy);
  assert.deepEqual(policies, ["authorization", undefined, "authorization"]);
});
