/**
 * Compares the guards with an independent table: generated addresses of each network, in each form that delivers to an
 * IPv4 address, in several spellings.
 */
import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import fc from "fast-check";
import { EgressGuard, type EgressOrigin } from "./egress-guard.ts";
import { restrictNetworks } from "./local-address.ts";

/** `own` is this machine and its link, `other` has no hosts of the internet, but is not refused to documents. */
type Network = "own" | "private" | "other" | "public";

const IPV4: readonly (readonly [network: string, bits: number, kind: Network])[] = [
  ["0.0.0.0", 8, "own"],
  ["127.0.0.0", 8, "own"],
  ["169.254.0.0", 16, "own"],
  ["10.0.0.0", 8, "private"],
  ["100.64.0.0", 10, "private"],
  ["172.16.0.0", 12, "private"],
  ["192.168.0.0", 16, "private"],
  ["192.0.0.0", 24, "other"],
  ["192.0.2.0", 24, "other"],
  ["198.51.100.0", 24, "other"],
  ["203.0.113.0", 24, "other"],
  ["198.18.0.0", 15, "other"],
  ["224.0.0.0", 4, "other"],
  ["240.0.0.0", 4, "other"],
  ["168.63.129.16", 32, "other"],
  ["1.1.1.0", 24, "public"],
  ["8.8.8.0", 24, "public"],
  ["93.184.0.0", 16, "public"],
  ["100.128.0.0", 9, "public"],
  ["172.32.0.0", 11, "public"],
  ["192.0.1.0", 24, "public"],
  ["198.20.0.0", 14, "public"],
  ["223.0.0.0", 8, "public"],
];
const IPV6: readonly (readonly [prefix: string, bits: number, kind: Network])[] = [
  ["2606:4700:0:0", 32, "public"],
  ["2a00:0:0:0", 16, "public"],
  ["3fff:1000:0:0", 20, "public"],
  ["2001:20:0:0", 28, "public"],
  ["2001:2:1:0", 48, "public"],
  ["2001:4860:0:0", 32, "public"],
  ["2001:2:0:0", 48, "other"],
  ["2001:10:0:0", 28, "other"],
  ["2001:db8:0:0", 32, "other"],
  ["3fff:0:0:0", 20, "other"],
  ["fc00:0:0:0", 8, "private"],
  ["fd00:0:0:0", 8, "private"],
  ["fe80:0:0:0", 10, "own"],
  ["fec0:0:0:0", 10, "other"],
  ["ff02:0:0:0", 16, "other"],
  ["5f00:0:0:0", 16, "other"],
  ["4000:0:0:0", 3, "other"],
  ["100:0:0:0", 64, "other"],
  ["64:ff9b:1:0", 48, "other"],
  ["400:0:0:0", 8, "other"],
];

const FORMS = [
  "ipv4",
  "mapped",
  "compatible",
  "nat64",
  "6to4",
  "teredo",
  "isatap",
  "isatap with the global bit",
  "ipv6",
] as const;
type Form = (typeof FORMS)[number];

interface Case {
  readonly text: string;
  readonly form: Form;
  readonly ipv4: Network;
  readonly ipv6: Network;
  /** The network of the IPv4 address. */
  readonly range: string;
}

/** Random bits after the prefix. */
function within(base: bigint, width: number, bits: number, random: bigint): bigint {
  const free = BigInt(width - bits);
  return ((base >> free) << free) | (random & ((1n << free) - 1n));
}

const ipv4Number = (text: string): bigint => text.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
const ipv6Number = (text: string): bigint =>
  text.split(":").reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
const dotted = (value: bigint): string => [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join(".");

function groups(value: bigint): string[] {
  return Array.from({ length: 8 }, (_, i) => ((value >> BigInt(112 - 16 * i)) & 0xffffn).toString(16));
}

const SPELLINGS: readonly ((value: bigint) => string)[] = [
  (value) => groups(value).join(":"),
  (value) => groups(value).join(":").toUpperCase(),
  (value) =>
    groups(value)
      .map((group) => group.padStart(4, "0"))
      .join(":"),
  (value) => `${groups(value).slice(0, 6).join(":")}:${dotted(value & 0xffffffffn)}`,
  // The longest run of zeros is omitted.
  (value) => {
    const list = groups(value);
    for (let length = 8; length > 1; length--)
      for (let at = 0; at + length <= 8; at++)
        if (list.slice(at, at + length).every((group) => group === "0"))
          return `${list.slice(0, at).join(":")}::${list.slice(at + length).join(":")}`;
    return list.join(":");
  },
  (value) => `${groups(value).join(":")}%eth0`,
];

const cases: fc.Arbitrary<Case> = fc
  .record({
    form: fc.constantFrom(...FORMS),
    ipv4: fc.constantFrom(...IPV4),
    ipv6: fc.constantFrom(...IPV6),
    random: fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }),
    spell: fc.constantFrom(...SPELLINGS),
  })
  .map(({ form, ipv4: [network, bits, ipv4], ipv6: [prefix, prefixBits, ipv6], random, spell }) => {
    const v4 = within(ipv4Number(network), 32, bits, random);
    const outer = within(ipv6Number(prefix), 64, prefixBits, random >> 64n) << 64n;
    const values: Record<Form, bigint> = {
      ipv4: v4,
      mapped: (0xffffn << 32n) | v4,
      compatible: v4,
      nat64: (0x64ff9bn << 96n) | v4,
      "6to4": (0x2002n << 112n) | (v4 << 80n) | (random & 0xffffn),
      teredo: (0x20010000n << 96n) | ((random & 0xffffffffffffn) << 32n) | (v4 ^ 0xffffffffn),
      isatap: outer | (0x5efen << 32n) | v4,
      "isatap with the global bit": outer | (0x2005efen << 32n) | v4,
      ipv6: outer | (random & 0xffffffffffffffffn),
    };
    return {
      text: form === "ipv4" ? dotted(v4) : spell(values[form]),
      form,
      ipv4,
      ipv6,
      embedded: dotted(v4),
      range: `${network}/${bits}`,
    };
  })
  // This machine's own addresses differ from machine to machine.
  .filter(({ text, embedded }) => !own.some((address) => text.includes(address) || embedded === address));

const own = Object.values(networkInterfaces()).flatMap((list) => list?.map(({ address }) => address) ?? []);

/** The networks that a packet to the address can reach. */
function networksOf({ form, ipv4, ipv6 }: Case): readonly Network[] {
  switch (form) {
    case "ipv6":
      return [ipv6];
    case "isatap":
    case "isatap with the global bit":
      return [ipv4, ipv6];
    default:
      return [ipv4];
  }
}

const PERMITTED: Readonly<Record<EgressOrigin, (networks: readonly Network[], inCluster: boolean) => boolean>> = {
  configuration: () => true,
  services: () => true,
  document: (networks, inCluster) => !networks.includes("own") && !(inCluster && networks.includes("private")),
  client: (networks) => networks.every((network) => network === "public"),
  server: (networks) => networks.every((network) => network === "public"),
  privateServer: (networks) => networks.some((network) => network !== "public"),
};
const ORIGINS = Object.keys(PERMITTED) as EgressOrigin[];

const RUNS = Number(process.env.EGRESS_CASES ?? 10_000);

test("each origin of an address reaches exactly its networks, in every form", (t) => {
  t.after(() => restrictNetworks(undefined));
  const seen = new Set<string>();
  fc.assert(
    fc.property(cases, fc.constantFrom(...ORIGINS), fc.boolean(), (address, origin, inCluster) => {
      restrictNetworks(inCluster ? "9.9.9.0/24" : undefined);
      const expected = PERMITTED[origin](networksOf(address), inCluster);
      const guard = EgressGuard.for(origin);
      const { text: host } = address;
      assert.equal(guard.permits(host, host), expected, `${origin} ${JSON.stringify(address)}`);
      assert.equal(guard.fault({ host }) === undefined, expected);
      seen.add(`${origin} ${address.form} ${expected}`);
    }),
    { numRuns: RUNS },
  );
  // Each form was both permitted and refused, where a guard refuses anything.
  assert.equal(seen.size, FORMS.length * (2 + 4 * 2));
});

const SAME: readonly Form[] = ["ipv4", "mapped", "compatible", "nat64"];

test("an allowed network permits its own addresses in their forms, not those of other networks that embed one", (t) => {
  t.after(() => restrictNetworks(undefined));
  fc.assert(
    fc.property(cases, (address) => {
      const { text: host, form, range } = address;
      const networks = networksOf(address);
      const isSame = SAME.includes(form);
      const permitted = EgressGuard.for("client", form === "ipv6" ? [] : [range]).permits(host, host);
      const isPublic = networks.every((network) => network === "public");
      assert.equal(permitted, isSame || isPublic, JSON.stringify(address));
      restrictNetworks(range);
      const expected = !networks.includes("own") && (isSame || !networks.includes("private"));
      assert.equal(EgressGuard.for("document").permits(host, host), expected, JSON.stringify(address));
    }),
    { numRuns: RUNS },
  );
});

test("a combined guard permits what both guards permit", () => {
  const guards = ORIGINS.map((origin) => EgressGuard.for(origin));
  fc.assert(
    fc.property(cases, fc.constantFrom(...guards), fc.constantFrom(...guards), ({ text }, one, other) => {
      const both = one.permits(text, text) && other.permits(text, text);
      assert.equal(one.and(other).permits(text, text), both);
      assert.equal(other.and(one).permits(text, text), both);
    }),
    { numRuns: 500 },
  );
  for (const one of guards)
    for (const other of guards)
      assert.equal(one.and(other).allowsUnixSockets, one.allowsUnixSockets && other.allowsUnixSockets);
});

test("of the addresses of a name, a connection can use only those that the guard permits", (t) => {
  t.after(() => restrictNetworks(undefined));
  const names = fc.array(cases, { minLength: 1, maxLength: 4 });
  const seen = new Set<string>();
  fc.assert(
    fc.property(names, fc.constantFrom(...ORIGINS), fc.boolean(), (addresses, origin, inCluster) => {
      restrictNetworks(inCluster ? "9.9.9.0/24" : undefined);
      const found = addresses.map(({ text, form }) => ({ address: text, family: form === "ipv4" ? 4 : 6 }));
      const expected = found.filter((_, i) => PERMITTED[origin](networksOf(addresses[i] as Case), inCluster));
      const lookup = EgressGuard.for(origin).lookup((_name, { all }, callback) => {
        if (all) callback(null, found);
        else callback(null, found[0]?.address ?? "", found[0]?.family);
      });
      lookup("host.example", { all: true }, (error, used) => {
        assert.equal(error === null, expected.length > 0);
        assert.deepEqual(used, expected);
      });
      lookup("host.example", {}, (error, used, family) => {
        assert.equal(error === null, expected.length > 0);
        assert.deepEqual([used, family], [expected[0]?.address ?? "", expected[0]?.family ?? 0]);
      });
      if (expected.length > 0 && expected.length < found.length) seen.add(origin);
    }),
    { numRuns: 2_000 },
  );
  assert.deepEqual([...seen].sort(), ["client", "document", "privateServer", "server"]);
});

test("unix sockets are for the operator's configuration only", () => {
  for (const origin of ORIGINS) {
    const fault = EgressGuard.for(origin).fault({ host: "localhost", socketPath: "/run/backend.sock" });
    assert.equal(fault === undefined, origin === "configuration", origin);
  }
});
