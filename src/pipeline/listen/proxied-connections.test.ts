import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MemorySocket } from "../../../test/support/memory-socket.ts";
import { formatProxyHeader } from "../../http/proxy-protocol.ts";
import { silentLogger } from "../../record/log/logger.ts";
import type { ListenerEnv } from "./listener-env.ts";
import { createProxiedConnections } from "./proxied-connections.ts";

const CLIENT = "203.0.113.9";
const REQUEST = "GET / HTTP/1.1\r\n\r\n";
const HEADERS: Readonly<Record<string, Buffer>> = {
  "no header": Buffer.alloc(0),
  "version 1": Buffer.from(`PROXY TCP4 ${CLIENT} 192.0.2.7 4711 80\r\n`),
  "version 2": formatProxyHeader({
    source: { address: CLIENT, port: 4711 },
    destination: { address: "192.0.2.7", port: 80 },
  }),
};

/** What becomes of a connection whose peer sends these bytes: `rejected`, or the bytes of the request and the client. */
async function outcome(isTrusted: boolean, isRequired: boolean, header: Buffer): Promise<string> {
  const connections = createProxiedConnections({
    clock: fakeClock(),
    logger: silentLogger,
    limits: { headersTimeoutMs: 1_000 },
    isTrustedPeer: () => isTrusted,
  } as unknown as ListenerEnv);
  const memory = new MemorySocket();
  const socket = memory as unknown as Socket;
  let isEntered = false;
  connections.enter(socket, { versions: ["v1", "v2"], isRequired }, () => {
    isEntered = true;
  });
  memory.arrive(Buffer.concat([header, Buffer.from(REQUEST)]));
  await new Promise(setImmediate);
  if (!isEntered) {
    assert.ok(memory.destroyed);
    return "rejected";
  }
  const read = String(memory.read()).replace(header.toString("latin1"), header.length === 0 ? "" : "header, ");
  return `${read} from ${connections.find(socket)?.addresses?.source.address ?? "the peer"}`;
}

for (const [name, header] of Object.entries(HEADERS))
  for (const isTrusted of [true, false])
    for (const isRequired of [true, false])
      test(`${name} of ${isTrusted ? "a trusted" : "another"} peer, ${isRequired ? "required" : "optional"}`, async () => {
        const hasHeader = header.length > 0;
        const found = await outcome(isTrusted, isRequired, header);
        if (isRequired && !(isTrusted && hasHeader)) assert.equal(found, "rejected");
        else if (isTrusted && hasHeader) assert.equal(found, `${REQUEST} from ${CLIENT}`);
        // The header of another peer is not read, so it is an invalid request.
        else
          assert.match(found, hasHeader ? /^.+GET \/ HTTP\/1\.1\r\n\r\n from the peer$/s : /^GET .* from the peer$/s);
      });
