import assert from "node:assert/strict";
import { test } from "node:test";
import {
  canServiceChange,
  foldHeaderName,
  HOP_BY_HOP_HEADERS,
  imitatesReservedHeader,
  includesHeader,
  isSameHeader,
  MESSAGE_HEADERS,
} from "./header-rules.ts";

const PUNCTUATION = [..."!#$%&'*+-.^_`|~"];

const pairs: [one: string, other: string, same: boolean][] = [
  ["x-user", "x-user", true],
  ["x-user", "X-USER", true],
  ...PUNCTUATION.map((mark): [string, string, boolean] => ["x-user", `x${mark}user`, true]),
  ["x_user", "x.user", true],
  ["x-user", "x-user-", false],
  ["x-user", "xuser", false],
  ["x-user", "x-usar", false],
  ["x-user", "x0user", false],
  ["", "", true],
];
for (const [one, other, same] of pairs) {
  test(`${JSON.stringify(one)} and ${JSON.stringify(other)} are ${same ? "one header" : "two headers"}`, () => {
    assert.equal(isSameHeader(one, other), same);
    assert.equal(isSameHeader(other, one), same);
    assert.equal(foldHeaderName(one) === foldHeaderName(other), same);
  });
}

test("a name of a table is found in every spelling, and others are not", () => {
  for (const name of MESSAGE_HEADERS) {
    for (const mark of PUNCTUATION) assert.ok(includesHeader(MESSAGE_HEADERS, name.replaceAll("-", mark)), name);
    assert.ok(includesHeader(MESSAGE_HEADERS, name.toUpperCase()), name);
    assert.equal(includesHeader(MESSAGE_HEADERS, `x-${name}`), false);
  }
});

test("all names of the tables are folded", () => {
  for (const name of [...HOP_BY_HOP_HEADERS, ...MESSAGE_HEADERS]) assert.equal(foldHeaderName(name), name);
});

for (const [name, imitates] of [
  ["x-forwarded-for", false],
  ["x_forwarded_for", true],
  ["x.forwarded.user", true],
  ["mcp_session_id", true],
  ["content~length", true],
  ["x-gateway_hop", true],
  ["x_custom", false],
  ["x.y", false],
] as const) {
  test(`${name} ${imitates ? "imitates" : "does not imitate"} a header that affects decisions`, () => {
    assert.equal(imitatesReservedHeader(name), imitates);
  });
}

for (const [name, may] of [
  ["x-user", true],
  ["authorization", true],
  ["x-forwarded-user", true],
  ["x-forwarded-for", false],
  ["x_forwarded_for", false],
  ["x-real-ip", false],
  ["host", false],
  ["Content_Length", false],
  ["content-encoding", false],
  ["x-gateway-error", false],
  ["x_gateway_hop", false],
  ["x-request-id", false],
  ...[...HOP_BY_HOP_HEADERS].map((name) => [name, false] as const),
] as const) {
  test(`an external service ${may ? "may" : "may not"} change ${name}`, () =>
    assert.equal(canServiceChange(name), may));
}
