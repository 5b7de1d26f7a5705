import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isAddressRange } from "../../http/address-range.ts";
import { forwardedClient, trustedPeers } from "./request-entry.ts";

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
  test(`${JSON.stringify(bad)} is not a range`, () => assert.equal(isAddressRange(bad), false));
}

const PROXIES = ["10.0.0.0/8", "fd00::/8"];
const chains: [header: string | undefined, client: string | undefined][] = [
  [undefined, undefined],
  ["7.7.7.7", "7.7.7.7"],
  ["7.7.7.7, 8.8.8.8", "8.8.8.8"],
  ["7.7.7.7,8.8.8.8", "8.8.8.8"],
  ["7.7.7.7, 10.1.1.1", "7.7.7.7"],
  ["6.6.6.6, 7.7.7.7, 10.1.1.1, fd00::1", "7.7.7.7"],
  ["10.1.1.2, 10.1.1.1", "10.1.1.2"],
  ["not-an-address, 7.7.7.7", "7.7.7.7"],
  ["7.7.7.7:4711", "7.7.7.7"],
  ["[2001:db8::1]:4711", "2001:db8::1"],
  ["[2001:db8::1]", "2001:db8::1"],
  ["2001:DB8:0:0::1", "2001:db8::1"],
  ["::ffff:7.7.7.7", "7.7.7.7"],
  ["::ffff:707:707", "7.7.7.7"],
  ["7.7.7.7, ::ffff:10.1.1.1", "7.7.7.7"],
  // Malformed where it must be parsed, so the whole header is ignored.
  ["", undefined],
  [",", undefined],
  ["7.7.7.7,", undefined],
  ["7.7.7.7, ", undefined],
  [", 10.1.1.1", undefined],
  [",10.1.1.1", undefined],
  ["7.7.7.7, unknown", undefined],
  ["unknown, 10.1.1.1", undefined],
  ["7.7.7.7 8.8.8.8", undefined],
  ["7.7.7", undefined],
  ["007.7.7.7", undefined],
  ["7.7.7.7:99999999", undefined],
  ["fe80::1%eth0", undefined],
  ["[fe80::1%25eth0]", undefined],
  ['"7.7.7.7"', undefined],
  ["_hidden", undefined],
  [Array.from({ length: 40 }, () => "10.1.1.1").join(), undefined],
];
for (const [header, client] of chains) {
  const shown = header !== undefined && header.length > 60 ? "a chain of 40 proxies" : JSON.stringify(header);
  test(`behind a trusted proxy ${shown} reports ${client ?? "no client"} [L20]`, () => {
    assert.equal(forwardedClient(header, trustedPeers(PROXIES)), client);
  });
}

test("entries that a client adds before those of the proxies do not change its address [L20]", () => {
  const isTrusted = trustedPeers(PROXIES);
  const junk = fc.oneof(
    fc.string({ unit: "binary-ascii", maxLength: 20 }),
    fc.ipV4(),
    fc.ipV6(),
    fc.constantFrom("10.0.0.1", "127.0.0.1", "unknown", ","),
  );
  const proxies = fc.array(fc.constantFrom("10.1.1.1", "10.2.2.2", "fd00::1"), { maxLength: 4 });
  fc.assert(
    fc.property(fc.array(junk, { maxLength: 6 }), proxies, fc.constantFrom(" ", ""), (forged, own, space) => {
      const header = [...forged, "7.7.7.7", ...own].join(`,${space}`);
      assert.equal(forwardedClient(header, isTrusted), "7.7.7.7");
    }),
    { seed: Number(process.env.FAST_CHECK_SEED ?? 1), numRuns: 500 },
  );
});
