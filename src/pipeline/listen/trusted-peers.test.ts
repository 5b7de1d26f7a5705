import assert from "node:assert/strict";
import { test } from "node:test";
import { isAddressRange, trustedPeers } from "./trusted-peers.ts";

const cases: [ranges: string[], peer: string, trusted: boolean][] = [
  [[], "127.0.0.1", false],
  [["127.0.0.1"], "127.0.0.1", true],
  [["127.0.0.1"], "::ffff:127.0.0.1", true],
  [["10.0.0.0/8"], "10.255.0.1", true],
  [["10.0.0.0/8"], "11.0.0.1", false],
  [["fd00::/8"], "fd12::1", true],
  [["fd00::/8"], "fe80::1", false],
  [["0.0.0.0/0"], "::1", false],
  [["10.0.0.0/8"], "", false],
];
for (const [ranges, peer, trusted] of cases) {
  test(`[${ranges}] ${trusted ? "trusts" : "does not trust"} ${JSON.stringify(peer)}`, () => {
    assert.equal(trustedPeers(ranges)(peer), trusted);
  });
}

for (const bad of ["", "10.0.0.0/33", "10.0.0/8", "example.com", "::1/129", "1.2.3.4/8/8", "10.0.0.0/-1"]) {
  test(`${JSON.stringify(bad)} is no range`, () => assert.equal(isAddressRange(bad), false));
}
