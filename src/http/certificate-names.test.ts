import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { certificates } from "../../test/support/tls/certificates.ts";
import { alternativeNames, hasOneName } from "./certificates.ts";

test("names are parsed in Node's format, and none from inside another name", () => {
  for (const [text, names] of [
    ["", []],
    ["DNS:A.example.com, URI:spiffe://a/b", ["DNS:a.example.com", "URI:spiffe://a/b"]],
    ["IP Address:127.0.0.1, DNS:x", ["IP Address:127.0.0.1", "DNS:x"]],
    ['DNS:"x, URI:spiffe://a/b"', ["DNS:x, uri:spiffe://a/b"]],
    ['DNS:"a\\u0000b", URI:spiffe://c', ["DNS:a\u0000b", "URI:spiffe://c"]],
    ["DNS:a, what is this", []],
  ] as const)
    assert.deepEqual(alternativeNames(text), names, text);
});

test("a certificate matches if it has one of the names", () => {
  const { raw } = new X509Certificate(certificates.server.cert);
  for (const [names, expected] of [
    [["backend.test"], true],
    [["other.test", "BACKEND.test"], true],
    [["other.test"], false],
    [["*.test"], false],
    [["spiffe://backend.test"], false],
    [["127.0.0.1"], false],
    [[], false],
  ] as const)
    assert.equal(hasOneName(raw, names), expected, names.join());
});
