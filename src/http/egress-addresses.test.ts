import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type LookupFunction } from "node:net";
import { test } from "node:test";
import { parseProxiedHost, publicAddresses } from "./egress-addresses.ts";
import { EgressGuard } from "./egress-guard.ts";
import { openSocket } from "./h1/connection.ts";

const isPublic = publicAddresses([]);

for (const address of [
  "127.0.0.1",
  "::ffff:127.0.0.1",
  "::127.0.0.1",
  "64:ff9b::7f00:1",
  "64:ff9b:1::7f00:1",
  "2002:7f00:1::",
  "2001::80ff:fffe",
  "fe80::1%eth0",
  "fd00:ec2::254",
  "169.254.169.254",
  "::ffff:a9fe:a9fe",
  "100.64.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:0:127.0.0.1",
  "::ffff:0:8.8.8.8",
  "100::1",
  "fc00::1",
  "fec0::1",
  "ff02::1",
  "5f00::1",
  // Local NAT64 prefixes, which embed 127.0.0.1 at other positions than the end.
  "64:ff9b:1:7f00:0:100:808:808",
  "64:ff9b:1:7f::1:808:808",
  "64:ff9b:2::808:808",
  "2606:4700::5efe:7f00:1",
  "2606:4700::200:5efe:10.0.0.1",
  "::1234:8.8.8.8",
  // ISATAP with a prefix that is not public, which embeds a public address.
  "fd00::5efe:808:808",
  "fd12:3456::200:5efe:808:808",
  "ff02::5efe:808:808",
  "fe80::5efe:808:808",
  "64:ff9b:1:a00:0:5efe:808:808",
  "5f00::200:5efe:808:808",
])
  test(`${address} is refused`, () => assert.equal(isPublic(address, address), false));

for (const address of [
  "93.184.215.14",
  "2606:4700::1",
  "64:ff9b::5db8:d70e",
  "172.32.0.1",
  "11.0.0.1",
  "2606:4700::5efe:808:808",
  "example.com",
])
  test(`${address} is not refused`, () => assert.equal(isPublic(address, address), true));

test("allowed networks are not refused, in any form", () => {
  const allowing = publicAddresses(["10.1.0.0/16", "::1"]);
  assert.equal(allowing("10.1.2.3", ""), true);
  assert.equal(allowing("::ffff:10.1.2.3", ""), true);
  assert.equal(allowing("::1", ""), true);
  assert.equal(allowing("10.2.0.1", ""), false);
  assert.equal(allowing("127.0.0.1", ""), false);
});

for (const [authority, expected] of [
  ["Example.com:443", { host: "example.com", port: 443 }],
  ["example.com", { host: "example.com", port: undefined }],
  ["10.0.0.1:80", { host: "10.0.0.1", port: 80 }],
  ["[2001:db8::1]:443", { host: "2001:db8::1", port: 443 }],
  ["[::1]:443", { host: "::1", port: 443 }],
  ["a.0x1b.com", { host: "a.0x1b.com", port: undefined }],
] as const)
  test(`${authority} is read`, () => assert.deepEqual(parseProxiedHost(authority), expected));

for (const authority of [
  "127.1",
  "2130706433",
  "0x7f000001",
  "0177.0.0.1",
  "127.0.0.1.",
  "127.0.0.256",
  "example.com.",
  "a..b",
  ".example.com",
  "example.com:0",
  "example.com:65536",
  "example.com:0443",
  "[2001:DB8:0::1]",
  "[::ffff:1.2.3.4]",
  "[2002:7f00:1::]",
  "[fe80::1%25eth0]",
  "user@example.com",
  "a b",
  "",
])
  test(`${JSON.stringify(authority)} has another reading`, () => assert.equal(parseProxiedHost(authority), undefined));

test("a connection uses the address that was checked, and a changed address is checked again", async (t) => {
  const server = createServer((socket) => socket.end("reached"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  let addresses = ["127.0.0.1"];
  let lookups = 0;
  const lookup: LookupFunction = (_name, _options, done) => {
    lookups += 1;
    const found = addresses.map((address) => ({ address, family: 4 }));
    // The next answer differs, as from a name server of an attacker.
    addresses = ["127.0.0.2"];
    done(null, found);
  };
  const target = {
    protocol: "http",
    host: "rebind.test",
    port,
    egress: EgressGuard.for("client", ["127.0.0.1"]),
  } as const;
  const socket = openSocket(target, lookup, [], 0);
  const [chunk] = (await once(socket, "data")) as [Buffer];
  assert.equal(String(chunk), "reached");
  assert.equal(socket.remoteAddress, "127.0.0.1");
  assert.equal(lookups, 1);
  socket.destroy();
  const [error] = (await once(openSocket(target, lookup, [], 0), "error")) as [Error];
  assert.match(error.message, /rebind\.test has no address that the forward proxy may use/);
});
