import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { anExchange, type ExchangeParts, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange } from "../../core/exchange.ts";
import { apiKey } from "./policy.ts";

const hashOf = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;
const keys = [
  { key: "plain-key-1", metadata: { user_id: "alice", tier: "gold" } },
  { keyHash: hashOf("hashed-key-2"), metadata: { user_id: "bob" } },
  { key: "bare-key-3" },
];

function run(parts: ExchangeParts, config: Record<string, unknown> = {}): Exchange {
  const hooks = apiKey.compile(apiKey.schema.parse({ keys, ...config }), testEnv);
  const exchange = anExchange(parts);
  assert.equal(hooks.access?.head?.(exchange), undefined);
  return exchange;
}

const places: Record<string, string>[] = [
  { authorization: "Bearer plain-key-1" },
  { authorization: "bearer plain-key-1" },
  { "x-api-key": "plain-key-1" },
  { "api-key": "plain-key-1" },
  { "x-goog-api-key": "plain-key-1" },
  { authorization: "Bearer some.other.token", "x-api-key": "plain-key-1" },
];
for (const headers of places) {
  test(`finds the key in ${Object.keys(headers).join(" and ")}`, () => {
    const exchange = run({ headers });
    assert.deepEqual(exchange.attributes.apiKey, { user_id: "alice", tier: "gold" });
    assert.ok(exchange.credentials.headers?.includes(Object.keys(headers).at(-1) ?? ""));
  });
}

test("a key can be configured as its SHA-256, without metadata", () => {
  assert.deepEqual(run({ headers: { "x-api-key": "hashed-key-2" } }).attributes.apiKey, { user_id: "bob" });
  assert.deepEqual(run({ headers: { "x-api-key": "bare-key-3" } }).attributes.apiKey, {});
});

const bad: Record<string, Record<string, string>> = {
  "no key": {},
  "another key": { "x-api-key": "plain-key-2" },
  "a prefix of a key": { "x-api-key": "plain-key" },
  "the key's hash": { "x-api-key": hashOf("hashed-key-2").slice(7) },
  "another scheme": { authorization: "Basic plain-key-1" },
  "two tokens": { authorization: "Bearer plain-key-1 x" },
};
for (const [name, headers] of Object.entries(bad)) {
  test(`rejects ${name} without echoing it`, () => {
    assert.throws(
      () => run({ headers }),
      (error: Error & { code: string; detail: string; headers: Record<string, string> }) => {
        assert.equal(error.code, "authentication_failed");
        assert.match(error.headers["www-authenticate"] ?? "", /^Bearer/);
        for (const value of Object.values(headers)) assert.ok(!`${error.message}${error.detail}`.includes(value));
        return true;
      },
    );
  });
}

test("a configured location replaces the default ones", () => {
  const header = { location: { header: { name: "X-Team-Key", prefix: "Key " } } };
  assert.deepEqual(run({ headers: { "x-team-key": "Key plain-key-1" } }, header).credentials.headers, ["x-team-key"]);
  assert.throws(() => run({ headers: { "x-api-key": "plain-key-1" } }, header), { code: "authentication_failed" });
  const query = { location: { queryParameter: { name: "key" } } };
  assert.deepEqual(run({ query: "a=1&key=plain-key-1" }, query).credentials.query, ["key"]);
  assert.throws(() => run({ query: "key=plain-key-1&key=x" }, query), /API key authentication failed/);
});

test("modes: optional passes without a key only, permissive passes always but forwards no bad key", () => {
  assert.equal(run({}, { mode: "optional" }).attributes.apiKey, undefined);
  assert.throws(() => run({ headers: { "x-api-key": "bad" } }, { mode: "optional" }), {
    code: "authentication_failed",
  });
  const exchange = run({ headers: { "x-api-key": "bad" } }, { mode: "permissive" });
  assert.equal(exchange.attributes.apiKey, undefined);
  assert.deepEqual(exchange.credentials.headers, ["x-api-key"]);
});

const badConfigs: unknown[] = [
  {},
  { keys: [] },
  { keys: [{}] },
  { keys: [{ key: "" }] },
  { keys: [{ key: "a", keyHash: hashOf("a") }] },
  { keys: [{ keyHash: "md5:abc" }] },
  { keys: [{ key: "a" }], location: { cookie: { name: "a" } } },
  { keys: [{ key: "a", name: "b" }] },
];
for (const config of badConfigs) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(apiKey.schema.safeParse(config).success, false);
  });
}

test("rejects a configuration with the same key twice, even if one is a hash", () => {
  const twice = { keys: [{ key: "a" }, { keyHash: hashOf("a") }] };
  assert.throws(() => apiKey.compile(apiKey.schema.parse(twice), testEnv), { name: "ConfigError", path: "keys" });
});

test("a gateway key in a second location is not forwarded either", () => {
  const exchange = run({ headers: { authorization: "Bearer plain-key-1", "x-api-key": "plain-key-1" } });
  assert.deepEqual(exchange.credentials.headers, ["authorization", "x-api-key"]);
  const foreign = run({ headers: { authorization: "Bearer plain-key-1", "x-api-key": "the backend's own" } });
  assert.deepEqual(foreign.credentials.headers, ["authorization"]);
});

test("rejects a request with the keys of two users", () => {
  const headers = { authorization: "Bearer plain-key-1", "x-api-key": "hashed-key-2" };
  assert.throws(() => run({ headers }), /API key authentication failed/);
  assert.equal(run({ headers }, { mode: "permissive" }).attributes.apiKey, undefined);
});

test("each key is a separate user, whatever its metadata", () => {
  const one = run({ headers: { "x-api-key": "bare-key-3" } }).identity.principal;
  const other = run({ headers: { "x-api-key": "plain-key-1" } }).identity.principal;
  assert.ok(one !== undefined && other !== undefined && one !== other);
});

for (const expires of ["tomorrow", "1", "2027-02-30T99:00Z", "2027-13-01", "31.01.2027"]) {
  test(`rejects the expiry ${expires}`, () => {
    assert.equal(apiKey.schema.safeParse({ keys: [{ key: "a", expires }] }).success, false);
  });
}
