import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../../base/peer-inputs.ts";
import { type RequestedUpgrade, ResponseParser } from "./response-parser.ts";

/** The example of RFC 6455 section 1.3. */
const KEY = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/** Header lines, and whether a response that is otherwise correct is accepted with them. */
type Lines = readonly [lines: readonly string[], isAccepted: boolean];

const UPGRADE: readonly Lines[] = [
  [["upgrade: websocket"], true],
  [["Upgrade:WebSocket"], true],
  [["UPGRADE: \t WEBSOCKET \t"], true],
  [[], false],
  [["upgrade:"], false],
  [["upgrade: h2c"], false],
  [["upgrade: websocket2"], false],
  [["upgrade: websocket/13"], false],
  [['upgrade: "websocket"'], false],
  [["upgrade: websocket, h2c"], false],
  [["upgrade: h2c, websocket"], false],
  [["upgrade: websocket", "upgrade: websocket"], false],
  [["upgrade: websocket", "upgrade: h2c"], false],
  [["upgrade: websocket,"], false],
  [["x-upgrade: websocket"], false],
];

const CONNECTION: readonly Lines[] = [
  [["connection: upgrade"], true],
  [["Connection: Upgrade"], true],
  [["connection:\tUPGRADE\t"], true],
  [["connection: keep-alive, Upgrade"], true],
  [["connection: upgrade ,close"], true],
  [["connection: keep-alive", "connection: upgrade"], true],
  [["connection: upgrade", "connection: upgrade"], true],
  [["connection: ,upgrade,"], true],
  [[], false],
  [["connection:"], false],
  [["connection: keep-alive"], false],
  [["connection: close"], false],
  [["connection: upgrades"], false],
  [["connection: x-upgrade"], false],
  [["connection: upgrade;q=1"], false],
  [["connection: keep-alive upgrade"], false],
  [['connection: "upgrade"'], false],
  [["connection: upgrade\xa0"], false],
  [["proxy-connection: upgrade"], false],
  [["x-connection: upgrade"], false],
];

const ACCEPTED: readonly Lines[] = [
  [[`sec-websocket-accept: ${ACCEPT}`], true],
  [[`Sec-WebSocket-Accept:${ACCEPT} `], true],
  [[], false],
  [["sec-websocket-accept:"], false],
  [[`sec-websocket-accept: ${KEY}`], false],
  [[`sec-websocket-accept: ${ACCEPT.toLowerCase()}`], false],
  [[`sec-websocket-accept: ${ACCEPT}, ${ACCEPT}`], false],
  [[`sec-websocket-accept: ${ACCEPT}`, `sec-websocket-accept: ${ACCEPT}`], false],
  [[`sec_websocket_accept: ${ACCEPT}`], false],
];

const FRAMING: readonly Lines[] = [
  [[], true],
  [["content-length: 0"], true],
  [["content-length: 5"], false],
  [["transfer-encoding: chunked"], false],
];

const REQUESTED: readonly [RequestedUpgrade | undefined, boolean][] = [
  [{ protocol: "websocket", key: KEY }, true],
  [{ protocol: "websocket", key: undefined }, false],
  [{ protocol: "websocket", key: "AAAAAAAAAAAAAAAAAAAAAA==" }, false],
  [undefined, false],
];

/** Returns the bytes after the head if the upgrade is accepted. */
function upgradedWith(lines: readonly string[], requested: RequestedUpgrade | undefined): string | undefined {
  let rest: string | undefined;
  const parser = new ResponseParser(peerInput("backend/http1-head"), peerInput("backend/response-framing"), {
    head: () => assert.fail(),
    data: () => assert.fail(),
    end: () => assert.fail(),
    upgrade: (_head, bytes) => {
      rest = bytes.toString("latin1");
    },
  });
  parser.expect("GET", requested);
  const head = ["HTTP/1.1 101 Switching Protocols", ...lines].join("\r\n");
  try {
    parser.push(Buffer.from(`${head}\r\n\r\nGET /admin HTTP/1.1\r\n\r\n`, "latin1"));
  } catch (error) {
    assert.equal((error as Error).name, "ResponseError");
    assert.equal(rest, undefined);
    return undefined;
  }
  return rest;
}

test("a 101 is accepted only if every one of its headers accepts the requested upgrade", () => {
  let [cases, accepted] = [0, 0];
  for (const [requested, isWanted] of REQUESTED)
    for (const [upgrade, isProtocol] of UPGRADE)
      for (const [connection, isListed] of CONNECTION)
        for (const [accept, isProof] of ACCEPTED)
          for (const [framing, isBodyless] of FRAMING) {
            cases += 1;
            const expected = isWanted && isProtocol && isListed && isProof && isBodyless;
            for (const lines of [
              [...upgrade, ...connection, ...accept, ...framing],
              [...framing, ...accept, ...connection, ...upgrade],
            ]) {
              const rest = upgradedWith(lines, requested);
              assert.equal(rest !== undefined, expected, JSON.stringify([requested, lines]));
              if (expected) assert.equal(rest, "GET /admin HTTP/1.1\r\n\r\n");
            }
            if (expected) accepted += 1;
          }
  assert.deepEqual([cases, accepted], [43_200, 96]);
});
