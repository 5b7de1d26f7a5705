import assert from "node:assert/strict";
import type { LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { EgressGuard } from "./egress-guard.ts";
import { isLocalAddress, isRefusedAddress, restrictNetworks } from "./local-address.ts";

test("loopback, link-local, unspecified and own addresses are local, in every notation", () => {
  const own = Object.values(networkInterfaces()).flatMap((list) => list?.map(({ address }) => address) ?? []);
  for (const address of [
    "127.0.0.1",
    "127.255.0.3",
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "::1",
    "::",
    "0:0:0:0:0:0:0:1",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:169.254.169.254",
    "fd00:ec2::254",
    "64:ff9b::127.0.0.1",
    "2002:7f00:1::",
    ...own,
    ...own.flatMap(otherForms),
  ])
    assert.ok(isLocalAddress(address), address);
  for (const address of ["192.0.2.1", "8.8.8.8", "128.0.0.1", "2001:db8::1", "fd00::1", "example.com", "localhost", ""])
    assert.ok(!isLocalAddress(address), address);
});

function otherForms(address: string): string[] {
  if (address.includes(":")) return [address.toUpperCase(), address.replace("::", "::0:")];
  const [a = 0, b = 0, c = 0, d = 0] = address.split(".").map(Number);
  const [high, low] = [((a << 8) | b).toString(16), ((c << 8) | d).toString(16)];
  return [`::ffff:${address}`, `::ffff:${high}:${low}`, `0:0:0:0:0:ffff:${high}:${low}`, `2002:${high}:${low}::1`];
}

function looked(addresses: readonly string[], all: boolean): unknown {
  const lookup: LookupFunction = (_name, options, callback) => {
    assert.equal(options.all, true);
    const found = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    callback(null, found);
  };
  let told: unknown;
  EgressGuard.for("document").lookup(lookup)("name.example", { all }, (error, ...rest) => {
    told = error ? error.message : rest;
  });
  return told;
}

test("a name keeps its other addresses, and is rejected if it has none", () => {
  assert.deepEqual(looked(["127.0.0.1", "192.0.2.1"], true), [[{ address: "192.0.2.1", family: 4 }]]);
  assert.deepEqual(looked(["::1", "2001:db8::1"], false), ["2001:db8::1", 6]);
  assert.match(String(looked(["127.0.0.1", "::1"], true)), /^name\.example is an address of the gateway's own machine/);
  assert.match(String(looked(["169.254.169.254"], false)), /own machine/);
});

test("in a cluster, private addresses are refused outside of the allowed networks and Services", (t) => {
  t.after(() => restrictNetworks(undefined));
  assert.ok(!isRefusedAddress("10.1.2.3", "models.example"), "files of the operator use any network");
  restrictNetworks("10.20.0.0/16, fd00:1::/32,127.0.0.0/8");
  for (const address of [
    "10.96.0.5",
    "172.16.1.1",
    "192.168.0.1",
    "100.64.0.1",
    "fd12::1",
    "::ffff:a60:5",
    "64:ff9b::a60:5",
  ])
    assert.ok(isRefusedAddress(address, "models.example"), address);
  for (const address of ["10.20.3.4", "fd00:1::9", "8.8.8.8", "2001:db8::1", "::ffff:10.20.0.1"])
    assert.ok(!isRefusedAddress(address, "models.example"), address);
  assert.ok(isRefusedAddress("127.0.0.1", "models.example"), "this machine is always refused");
  for (const host of ["web.shop.svc", "web.shop.svc.cluster.local", "pod-0.web.shop.svc"])
    assert.ok(!isRefusedAddress("10.96.0.5", host), host);
  for (const host of ["web.shop.svc.evil.example", "svc", "shop.svc", "web.shop.pod.cluster.local"])
    assert.ok(isRefusedAddress("10.96.0.5", host), host);
});

for (const wrong of ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8/8", "internal", "::/129", "10.0.0.0/-1"])
  test(`${wrong} is not a network`, () => {
    assert.throws(() => restrictNetworks(wrong), /is not a network/);
  });
