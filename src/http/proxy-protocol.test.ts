import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../base/peer-inputs.ts";
import { formatProxyHeader, type ProxiedAddresses, readProxyHeader } from "./proxy-protocol.ts";

const HEADER = peerInput("client/proxy-header");

const SIGNATURE = "0d0a0d0a000d0a515549540a";
const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");
const addresses = (source: string, destination: string, from = 4711, to = 443): ProxiedAddresses => ({
  source: { address: source, port: from },
  destination: { address: destination, port: to },
});

test("version 1 carries the addresses of the client", () => {
  const line = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
  assert.deepEqual(readProxyHeader(HEADER, Buffer.from(`${line}GET / HTTP/1.1\r\n`)), {
    state: "complete",
    version: "v1",
    length: line.length,
    addresses: addresses("192.0.2.7", "198.51.100.1"),
  });
  const v6 = readProxyHeader(HEADER, Buffer.from("PROXY TCP6 2001:DB8:0:0::7 ::ffff:198.51.100.1 4711 443\r\n"));
  assert.deepEqual(v6.state === "complete" && v6.addresses, addresses("2001:db8::7", "198.51.100.1"));
});

test("version 2 carries the addresses of the client, before optional fields", () => {
  const bytes = hex(`${SIGNATURE} 21 11 0010 c0000207 c6336401 1267 01bb 04000100`);
  const found = readProxyHeader(HEADER, Buffer.concat([bytes, Buffer.from("rest")]));
  assert.deepEqual(found, {
    state: "complete",
    version: "v2",
    length: bytes.length,
    addresses: addresses("192.0.2.7", "198.51.100.1"),
  });
});

for (const [name, bytes] of [
  ["version 1 with an unknown client", Buffer.from("PROXY UNKNOWN ffff:: ignored\r\n")],
  ["a health check", hex(`${SIGNATURE} 20 00 0000`)],
  ["a health check with addresses", hex(`${SIGNATURE} 20 11 000c c0000207 c6336401 1267 01bb`)],
  ["a client without a family", hex(`${SIGNATURE} 21 00 0000`)],
  ["a client on a Unix socket", hex(`${SIGNATURE} 21 31 00d8 ${"00".repeat(216)}`)],
] as const) {
  test(`no address: ${name}`, () => {
    const found = readProxyHeader(HEADER, bytes);
    assert.equal(found.state, "complete");
    assert.equal(found.state === "complete" && found.addresses, undefined);
  });
}

for (const [name, bytes] of [
  ["a leading zero in a port", Buffer.from("PROXY TCP4 192.0.2.7 198.51.100.1 04711 443\r\n")],
  ["a port above 65535", Buffer.from("PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n")],
  ["a missing port", Buffer.from("PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n")],
  ["a further word", Buffer.from("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443 1\r\n")],
  ["an octal address", Buffer.from("PROXY TCP4 0300.0.2.7 198.51.100.1 4711 443\r\n")],
  ["an IPv6 address in TCP4", Buffer.from("PROXY TCP4 ::1 198.51.100.1 4711 443\r\n")],
  ["a zone", Buffer.from("PROXY TCP6 fe80::1%eth0 ::1 4711 443\r\n")],
  ["an unknown family", Buffer.from("PROXY UDP4 192.0.2.7 198.51.100.1 4711 443\r\n")],
  ["a line without an end", Buffer.from(`PROXY TCP4 ${"1".repeat(120)}`)],
  ["version 3", hex(`${SIGNATURE} 31 11 000c c0000207 c6336401 1267 01bb`)],
  ["an unknown command", hex(`${SIGNATURE} 22 11 000c c0000207 c6336401 1267 01bb`)],
  ["datagrams", hex(`${SIGNATURE} 21 12 000c c0000207 c6336401 1267 01bb`)],
  ["addresses that are cut off", hex(`${SIGNATURE} 21 11 0008 c0000207 c6336401`)],
  ["a header above the limit", hex(`${SIGNATURE} 21 11 ffff`)],
] as const) {
  test(`invalid: ${name}`, () => assert.deepEqual(readProxyHeader(HEADER, bytes), { state: "invalid" }));
}

test("each prefix of a header is incomplete, and other bytes are no header", () => {
  const headers = [Buffer.from("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n"), formatProxyHeader(undefined)];
  for (const header of headers)
    for (let length = 0; length < header.length; length++)
      assert.deepEqual(readProxyHeader(HEADER, header.subarray(0, length)), { state: "incomplete" }, `${length} bytes`);
  for (const text of ["GET / HTTP/1.1\r\n", "PROXX", "\r\n\r\nx", "\x16\x03\x01"])
    assert.deepEqual(readProxyHeader(HEADER, Buffer.from(text, "latin1")), { state: "absent" });
});

for (const [source, destination, expected] of [
  ["192.0.2.7", "198.51.100.1", "11"],
  ["2001:db8::7", "::1", "21"],
  ["::", "1:2:3:4:5:6:7:8", "21"],
  ["fe80::1%eth0", "::ffff:1.2.3.4", "21"],
  ["192.0.2.7", "2001:db8::1", "21"],
] as const) {
  test(`writes ${source} to ${destination} so that it can be read`, () => {
    const written = formatProxyHeader(addresses(source, destination));
    assert.equal(written.toString("hex", 13, 14), expected);
    const found = readProxyHeader(HEADER, written);
    const plain = (address: string): string => address.replace(/%.*|^::ffff:/, "");
    assert.deepEqual(found.state === "complete" && found.addresses, addresses(plain(source), plain(destination)));
  });
}

test("writes an unknown client if an address cannot be read", () => {
  assert.equal(formatProxyHeader(addresses("", "192.0.2.1")).toString("hex"), `${SIGNATURE}21000000`);
});
