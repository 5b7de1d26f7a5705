import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../support/exchange.ts";
import { allowMethods } from "./policy.ts";

const hooks = allowMethods.compile({ methods: ["GET", "HEAD"] }, testEnv);

for (const method of ["GET", "HEAD"]) {
  test(`${method} passes`, () => {
    assert.equal(hooks.access?.head?.(anExchange({ method })), undefined);
  });
}

for (const method of ["POST", "DELETE", "get"]) {
  test(`${method} is rejected with the list of allowed methods`, () => {
    assert.throws(() => hooks.access?.head?.(anExchange({ method })), { status: 405, headers: { allow: "GET, HEAD" } });
  });
}

for (const config of [{}, { methods: [] }, { methods: ["get"] }, { methods: ["GET"], more: 1 }]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(allowMethods.schema.safeParse(config).success, false);
  });
}
