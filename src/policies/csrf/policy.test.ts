import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { csrf } from "./policy.ts";

const hooks = csrf.compile({ additionalOrigins: ["https://app.example.com"] }, testEnv);

const passes: [name: string, method: string, headers: Record<string, string>][] = [
  ["a read from another page", "GET", { origin: "https://evil.example", "sec-fetch-site": "cross-site" }],
  ["a client that is no browser", "POST", {}],
  ["a page of the same origin", "POST", { origin: "https://gateway.test", "sec-fetch-site": "same-origin" }],
  ["a user's own action", "POST", { "sec-fetch-site": "none" }],
  ["an older browser on a page of the host", "DELETE", { origin: "http://gateway.test" }],
  ["a listed origin", "PUT", { origin: "https://app.example.com", "sec-fetch-site": "cross-site" }],
];
for (const [name, method, headers] of passes)
  test(`passes ${name}`, () => {
    assert.equal(hooks.access?.head?.(anExchange({ method, headers })), undefined);
  });

const rejected: [name: string, method: string, headers: Record<string, string>][] = [
  ["a page of another site", "POST", { origin: "https://evil.example", "sec-fetch-site": "cross-site" }],
  ["a page of the same site", "POST", { origin: "https://gateway.test", "sec-fetch-site": "same-site" }],
  ["an older browser on another page", "POST", { origin: "https://evil.example" }],
  ["an opaque origin", "POST", { origin: "null" }],
  ["an origin with another port", "POST", { origin: "http://gateway.test:8080" }],
  ["a name that contains the host", "POST", { origin: "http://gateway.test.evil.example" }],
  ["a name that contains a listed origin", "POST", { origin: "https://app.example.com.evil.example" }],
  ["a method in another case", "get", { origin: "https://evil.example" }],
  ["a WebSocket of another page", "GET", { origin: "https://evil.example", upgrade: "websocket" }],
];
for (const [name, method, headers] of rejected)
  test(`rejects ${name}`, () => {
    assert.throws(() => hooks.access?.head?.(anExchange({ method, headers })), {
      status: 403,
      code: "origin_denied",
      message: "CSRF validation failed",
    });
  });

test("rejects repeated headers, of which the backend could read another", () => {
  for (const name of ["origin", "sec-fetch-site"]) {
    const exchange = anExchange({
      method: "POST",
      headers: { "sec-fetch-site": "same-origin", origin: "http://gateway.test" },
    });
    exchange.request.headers.add(name, "same-origin");
    assert.throws(() => hooks.access?.head?.(exchange), { code: "origin_denied" });
  }
});

for (const config of [{ additionalOrigins: ["*"] }, { additionalOrigins: ["https://a/b"] }, { more: 1 }])
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(csrf.schema.safeParse(config).success, false);
  });
