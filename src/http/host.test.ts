import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  canonicalAddress,
  canonicalOrigin,
  canonicalPattern,
  canonicalServerName,
  clientNetwork,
  createHostTable,
  hostOf,
  hostToConnect,
  isLoopbackHost,
  isOwnOrigin,
  matchesHost,
  parseAuthority,
  withoutPort,
} from "./host.ts";

const read: [authority: string, name: string, text: string][] = [
  ["a.example", "a.example", "a.example"],
  ["A.Example", "a.example", "a.example"],
  ["a.example.", "a.example", "a.example"],
  ["A.EXAMPLE.:080", "a.example", "a.example:80"],
  ["a.example:8443", "a.example", "a.example:8443"],
  ["a_b.example", "a_b.example", "a_b.example"],
  ["localhost", "localhost", "localhost"],
  ["127.0.0.1:80", "127.0.0.1", "127.0.0.1:80"],
  ["xn--BCHER-kva.example", "xn--bcher-kva.example", "xn--bcher-kva.example"],
  ["[::1]", "::1", "[::1]"],
  ["[0:0:0:0:0:0:0:1]:80", "::1", "[::1]:80"],
  ["[2001:DB8::0:1]", "2001:db8::1", "[2001:db8::1]"],
  ["a:0", "a", "a:0"],
];
for (const [authority, name, text] of read)
  test(`${authority} is the host ${name}`, () => {
    const parsed = parseAuthority(authority);
    assert.deepEqual([parsed?.name, parsed?.text], [name, text]);
    assert.equal(hostOf(authority), name);
  });

const rejected = [
  ...[
    "",
    " ",
    ".",
    "..",
    "a..b",
    ".a",
    "a..",
    "a b",
    "a,b",
    "a/b",
    "a@b",
    "a?b",
    "a#b",
    "a%41",
    "a\\b",
    "bücher.example",
  ],
  ...[
    "a:",
    "a:x",
    "a:-1",
    "a:+1",
    "a:65536",
    "a:100000",
    ":80",
    "a:1:2",
    "::1",
    "::1:80",
    "[::1",
    "[]",
    "[:]",
    "[1.2.3.4]",
  ],
  ...["[::1]x", "[::1%25eth0]", "[fe80::1%eth0]", "[g::]", "a\r\n", "a\u0000"],
];
for (const authority of rejected)
  test(`${JSON.stringify(authority)} is no authority, and its host equals none`, () => {
    assert.equal(parseAuthority(authority), undefined);
    assert.equal(hostOf(authority), "");
    assert.equal(matchesHost(canonicalPattern("a"), hostOf(authority)), false);
    assert.equal(isLoopbackHost(hostOf(authority)), false);
    assert.equal(withoutPort(authority), authority);
  });

const label = fc.stringMatching(/^[A-Za-z0-9_~-]{1,8}$/);
const ipv6 = fc
  .array(fc.nat(0xffff), { minLength: 8, maxLength: 8 })
  .map((groups) => groups.map((group) => (group % 3 === 0 ? 0 : group).toString(16)).join(":"));
const host = fc.oneof(
  fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join(".")),
  ipv6.map((address) => `[${address}]`),
);
/** Another spelling of the same authority. */
const spelled = fc.record({ isUpper: fc.boolean(), hasDot: fc.boolean(), hasZeros: fc.boolean() });
const port = fc.option(fc.nat(65_535), { nil: undefined });

test("the canonical form is stable, and every spelling of an authority has the same one", () => {
  fc.assert(
    fc.property(host, port, spelled, (name, number, { isUpper, hasDot, hasZeros }) => {
      const digits = number === undefined ? "" : `:${hasZeros ? String(number).padStart(5, "0") : number}`;
      const other = `${isUpper ? name.toUpperCase() : name}${hasDot && !name.startsWith("[") ? "." : ""}${digits}`;
      const one = parseAuthority(number === undefined ? name : `${name}:${number}`);
      assert.ok(one !== undefined);
      assert.deepEqual({ ...parseAuthority(other) }, { ...one });
      assert.deepEqual({ ...parseAuthority(one.text) }, { ...one });
      assert.equal(parseAuthority(withoutPort(one.text))?.text, withoutPort(one.text));
      assert.equal(canonicalPattern(name), one.name);
    }),
    { numRuns: 1_000 },
  );
});

test("no text has a canonical form that reads as another host", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary-ascii", maxLength: 20 }), (text) => {
      const parsed = parseAuthority(text);
      if (parsed === undefined) return;
      const url = new URL(`http://${parsed.text}/`);
      assert.deepEqual([url.username, url.pathname, url.search], ["", "/", ""]);
    }),
    { numRuns: 2_000 },
  );
});

test("patterns of the configuration may be IPv6 addresses, and names in letters that are not ASCII", () => {
  assert.equal(canonicalPattern("::1"), "::1");
  assert.equal(canonicalPattern("[0::1]"), "::1");
  assert.equal(canonicalPattern("Bücher.example"), "xn--bcher-kva.example");
  assert.equal(canonicalPattern("*.Bücher.example."), "*.xn--bcher-kva.example");
  assert.ok(matchesHost(canonicalPattern("*.bücher.example"), hostOf("A.XN--bcher-KVA.example.:80")));
});

test("a page's origin is compared with its host by name and port", () => {
  const own = [
    "http://a.test|A.test",
    "http://a.test:80|a.test.",
    "https://a.test|a.test:443",
    "http://[::1]:1|[0::1]:1",
  ];
  const foreign = [
    ...[
      "http://a.test|b.test",
      "http://a.test:81|a.test",
      "http://a.test|a.test:443",
      "null|a.test",
      "http://|",
      "x|x",
    ],
    ...["file://a.test|a.test", "http://a.test.evil|a.test", "http://a.test|"],
  ];
  for (const [pairs, expected] of [
    [own, true],
    [foreign, false],
  ] as const)
    for (const pair of pairs) {
      const [origin = "", authority = ""] = pair.split("|");
      assert.equal(isOwnOrigin(origin, authority), expected, pair);
    }
});

test("addresses of sockets have one spelling", () => {
  assert.equal(canonicalAddress("::ffff:127.0.0.1"), "127.0.0.1");
  assert.equal(canonicalAddress("fe80::1%eth0"), "fe80::1");
  assert.equal(canonicalAddress("::1"), "::1");
  assert.equal(canonicalAddress("::FFFF:c0a8:1"), "192.168.0.1");
  assert.equal(canonicalAddress("2001:DB8:0:0::1"), "2001:db8::1");
  assert.equal(canonicalAddress(""), "");
});

test("addresses of one client", () => {
  const cases: [address: string, network: string][] = [
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::1", "0:0:0:0::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:0db8:0:0:1:2:3:4", "2001:db8:0:0::/64"],
    ["2001:db8:0:1::", "2001:db8:0:1::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ];
  for (const [address, network] of cases) assert.equal(clientNetwork(address), network, address);
});

test("origins have one spelling", () => {
  const cases: [origin: string, canonical: string | undefined][] = [
    ["https://a.test", "https://a.test"],
    ["HTTPS://A.Test.:443", "https://a.test"],
    ["http://a.test:0080", "http://a.test"],
    ["https://a.test:80", "https://a.test:80"],
    ["http://[0::1]:8080", "http://[::1]:8080"],
    ["chrome-extension://AbC", "chrome-extension://abc"],
    ["null", undefined],
    ["a.test", undefined],
    ["https://a.test/", undefined],
    ["https://a.test/path", undefined],
    ["https://a.test?x", undefined],
    ["https://u@a.test", undefined],
    ["file://", undefined],
  ];
  for (const [origin, canonical] of cases) assert.equal(canonicalOrigin(origin), canonical, origin);
});

test("sockets and certificates get the host of a URL without brackets", () => {
  assert.equal(hostToConnect(new URL("http://[::1]:80/")), "::1");
  assert.equal(hostToConnect(new URL("http://A.test.:80/")), "a.test.");
});

const table = createHostTable([
  ["a.example.com", 1],
  ["*.example.com", 2],
  ["*.deep.example.com", 3],
  ["a.example.com", 4],
]);

const found: [asked: string, found: number | undefined][] = [
  ["a.example.com", 1],
  ["A.Example.COM", 1],
  ["a.example.com.", 1],
  ["a.example.com:443", undefined],
  ["b.example.com", 2],
  ["x.b.example.com", 2],
  ["x.deep.example.com", 3],
  ["deep.example.com", 2],
  ["example.com", undefined],
  [".example.com", undefined],
  ["other.test", undefined],
  ["", undefined],
];
for (const [asked, expected] of found)
  test(`the server name ${JSON.stringify(asked)} finds ${expected}`, () =>
    assert.equal(table.find(canonicalServerName(asked)), expected));
