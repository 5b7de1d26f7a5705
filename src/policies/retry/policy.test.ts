import assert from "node:assert/strict";
import { test } from "node:test";
import { testEnv } from "../../../test/support/exchange.ts";
import { retry } from "./policy.ts";

test("retry defaults to one retry after 25 ms, for no status", () => {
  assert.deepEqual(retry.compile(retry.schema.parse({}), testEnv).settings, {
    retry: { attempts: 1, backoffMs: 25, codes: new Set() },
  });
  assert.deepEqual(
    retry.compile(retry.schema.parse({ attempts: 3, backoff: "1s", codes: [502, 503] }), testEnv).settings,
    {
      retry: { attempts: 3, backoffMs: 1000, codes: new Set([502, 503]) },
    },
  );
});

for (const config of [
  { attempts: 0 },
  { attempts: 11 },
  { attempts: 1.5 },
  { backoff: 5 },
  { backoff: "soon" },
  { codes: [200] },
  { codes: ["5xx"] },
  { condition: 1 },
  { precondition: "" },
]) {
  test(`retry rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(retry.schema.safeParse(config).success, false);
  });
}

test("a condition cannot read the response body", () => {
  const config = retry.schema.parse({ condition: 'response.body == "x"' });
  assert.throws(() => retry.compile(config, testEnv), /the response body is not available/);
});
