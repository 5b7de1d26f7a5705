import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createConnectionLimits } from "./listener.ts";
import { trustedPeers } from "./request-entry.ts";

const LIMIT = 3;

class FakeSocket extends EventEmitter {
  isDestroyed = false;
  readonly remoteAddress: string | undefined;

  constructor(remoteAddress: string | undefined) {
    super();
    this.remoteAddress = remoteAddress;
  }

  destroy(): void {
    this.isDestroyed = true;
    this.emit("close");
  }
}

function connections(trusted: readonly string[] = []) {
  const limits = createConnectionLimits({
    clock: fakeClock(),
    logger: silentLogger,
    isTrustedPeer: trustedPeers(trusted),
    limits: { maxConnectionsPerAddress: LIMIT },
  });
  return (address: string | undefined): FakeSocket => {
    const socket = new FakeSocket(address);
    assert.equal(limits.admit(socket as unknown as Socket), !socket.isDestroyed);
    return socket;
  };
}

/** Two addresses, and whether their connections have one limit. */
const PAIRS: readonly [first: string, second: string, isOneClient: boolean][] = [
  ["192.0.2.1", "192.0.2.1", true],
  ["192.0.2.1", "::ffff:192.0.2.1", true],
  ["192.0.2.1", "192.0.2.2", false],
  ["::ffff:192.0.2.1", "::ffff:192.0.2.2", false],
  ["2001:db8:0:1::1", "2001:db8:0:1::2", true],
  ["2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true],
  ["2001:db8:0:1::1", "2001:db8:0:2::1", false],
  ["fe80::1%eth0", "fe80::2%eth0", true],
];
for (const [first, second, isOneClient] of PAIRS)
  test(`connections from ${first} and ${second} have ${isOneClient ? "one limit" : "separate limits"}`, () => {
    const connect = connections();
    const opened = Array.from({ length: LIMIT }, () => connect(first));
    assert.ok(opened.every(({ isDestroyed }) => !isDestroyed));
    assert.equal(connect(first).isDestroyed, true);
    assert.equal(connect(second).isDestroyed, isOneClient);
    opened[0]?.destroy();
    const next = [connect(second), connect(second)];
    assert.deepEqual(
      next.map(({ isDestroyed }) => isDestroyed),
      [false, isOneClient],
    );
  });

test("any number of addresses of one IPv6 network have as many connections as one address", () => {
  const connect = connections();
  const opened = Array.from({ length: 1_000 }, (_, i) => connect(`2001:db8::${i.toString(16)}:1`));
  assert.equal(opened.filter(({ isDestroyed }) => !isDestroyed).length, LIMIT);
});

test("trusted proxies and Unix sockets are not limited", () => {
  const connect = connections(["2001:db8::/64"]);
  for (const address of ["2001:db8::1", undefined])
    for (let i = 0; i <= LIMIT; i++) assert.equal(connect(address).isDestroyed, false, String(address));
});
