/**
 * PROXY protocol headers: a second reader, written from the protocol's description, agrees; every prefix of a header is
 * incomplete; and a header that the gateway writes is read as the same addresses.
 */
import { isIPv4, isIPv6 } from "node:net";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { formatProxyHeader, readProxyHeader } from "../../../src/http/proxy-protocol.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const HEADER = peerInput("client/proxy-header");

const LEAST_ADDRESS_BYTES: Readonly<Record<number, number>> = { 0: 0, 17: 12, 33: 36, 49: 216 };
const SIGNATURE = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");

/** Accepts exactly the lines and bytes that the description allows, with no shared code. */
function reference(bytes: Buffer): string {
  const text = bytes.toString("latin1");
  const signature = SIGNATURE.toString("latin1");
  if (text.startsWith(signature) || signature.startsWith(text)) {
    if (bytes.length < 16) return "incomplete";
    const [versionAndCommand = 0, family = 0] = bytes.subarray(12, 14);
    const length = bytes.readUInt16BE(14);
    if (versionAndCommand >> 4 !== 2 || (versionAndCommand & 15) > 1 || 16 + length > 4096) return "invalid";
    if (bytes.length < 16 + length) return "incomplete";
    if ((versionAndCommand & 15) === 0) return "complete";
    const least = LEAST_ADDRESS_BYTES[family];
    return least !== undefined && length >= least ? "complete" : "invalid";
  }
  if (!text.startsWith("PROXY ") && !"PROXY ".startsWith(text)) return "absent";
  const end = text.indexOf("\r\n");
  if (end < 0 || end > 105) return text.length < 107 ? "incomplete" : "invalid";
  const words = text.slice(0, end).split(" ");
  if (words[1] === "UNKNOWN") return "complete";
  const [, family, from = "", to = "", ...ports] = words;
  const isAddress = (word: string): boolean =>
    family === "TCP4" ? isIPv4(word) : family === "TCP6" && isIPv6(word) && !word.includes("%");
  const isPort = (word: string): boolean => String(Number(word)) === word && /^\d+$/.test(word) && Number(word) < 65536;
  return isAddress(from) && isAddress(to) && ports.length === 2 && ports.every(isPort) ? "complete" : "invalid";
}

const WORDS = [
  "PROXY ",
  "TCP4 ",
  "TCP6 ",
  "UNKNOWN",
  "1.2.3.4 ",
  "::1 ",
  "fe80::1%a ",
  "80 ",
  "443",
  "\r\n",
  "065 ",
  "x",
];

function binary(random: Random): Buffer {
  const content = Buffer.from(Array.from({ length: random.pick([0, 4, 12, 15, 36, 216, 300]) }, () => random.int(256)));
  const fixed = Buffer.alloc(4);
  fixed[0] = random.pick([0x20, 0x21, 0x21, 0x21, 0x22, 0x11]);
  fixed[1] = random.pick([0x00, 0x11, 0x11, 0x21, 0x21, 0x31, 0x12, 0x41]);
  fixed.writeUInt16BE(random.oneIn(8) ? random.int(65536) : content.length, 2);
  return Buffer.concat([SIGNATURE, fixed, content]);
}

export const proxyHeaders = defineTarget<Buffer>({
  name: "proxy-headers",
  seeds: [
    Buffer.from("PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\nGET / HTTP/1.1\r\n"),
    Buffer.from("PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 65535 0\r\n"),
    formatProxyHeader({ source: { address: "192.0.2.1", port: 1 }, destination: { address: "::1", port: 2 } }),
  ],
  smokeCases: 3_000,
  generate: (random) => (random.oneIn(2) ? binary(random) : Buffer.from(random.text(WORDS, 9))),
  run(bytes) {
    const header = readProxyHeader(HEADER, bytes);
    expectSame(header.state, reference(bytes), "as the reference reads it");
    if (header.state !== "complete") return header.state;
    expect(header.length <= bytes.length, "the header is longer than the bytes");
    expectSame(readProxyHeader(HEADER, bytes.subarray(0, header.length)), header, "without the bytes after it");
    for (let length = 0; length < header.length; length++)
      expectSame(readProxyHeader(HEADER, bytes.subarray(0, length)).state, "incomplete", `the first ${length} bytes`);
    const { addresses } = header;
    const again = readProxyHeader(HEADER, formatProxyHeader(addresses));
    expectSame(again.state === "complete" ? again.addresses : again.state, addresses, "written and read again");
    return `${header.version} ${header.length} ${addresses === undefined}`;
  },
});
