import assert from "node:assert/strict";
import { test } from "node:test";
import { type BusPeer, createProcessBus, type ProcessBus } from "./process-bus.ts";

function connected(one: ProcessBus, other: ProcessBus): BusPeer {
  const here: BusPeer = one.connect((message) => there.received(message));
  const there: BusPeer = other.connect((message) => here.received(message));
  return here;
}

test("a message reaches the receivers of the other process, also those that listened before", async () => {
  const [old, next] = [createProcessBus(), createProcessBus()];
  const received: string[] = [];
  old.listen("a", (text) => received.push(text));
  next.listen("a", () => assert.fail("a process does not receive its own messages"));
  assert.equal(next.hasPeers, false);
  assert.equal(await next.publish("a", "lost"), 0);
  connected(old, next);
  assert.equal(next.hasPeers, true);
  assert.equal(await next.publish("a", "x"), 1);
  assert.equal(await next.publish("b", "y"), 0);
  assert.deepEqual(received, ["x"]);
});

test("a closed receiver gets no message", async () => {
  const [old, next] = [createProcessBus(), createProcessBus()];
  connected(old, next);
  const first = old.listen("a", () => assert.fail("closed"));
  first.close();
  first.close();
  assert.equal(await next.publish("a", "x"), 0);
});

test("messages to a process that has ended have no receivers", async () => {
  const bus = createProcessBus();
  const peer = bus.connect(() => undefined);
  const sent = bus.publish("a", "x");
  peer.close();
  assert.equal(await sent, 0);
  assert.equal(bus.hasPeers, false);
});

test("a main thread relays messages between its threads and the other process, while there is one", async () => {
  const [thread, main, otherMain, otherThread] = [0, 1, 2, 3].map(createProcessBus) as [
    ProcessBus,
    ProcessBus,
    ProcessBus,
    ProcessBus,
  ];
  let isActive = false;
  const join = (one: ProcessBus, other: ProcessBus): void => {
    const here: BusPeer = one.connect(
      (message) => there.received(message),
      () => isActive,
    );
    const there: BusPeer = other.connect(
      (message) => here.received(message),
      () => isActive,
    );
  };
  join(thread, main);
  join(otherThread, otherMain);
  const received: string[] = [];
  otherThread.listen("a", (text) => received.push(text));
  assert.deepEqual([thread.hasPeers, main.hasPeers, await thread.publish("a", "lost")], [false, false, 0]);
  isActive = true;
  const link = connected(main, otherMain);
  assert.equal(await thread.publish("a", "x"), 1);
  assert.equal(await thread.publish("b", "y"), 0);
  link.close();
  assert.equal(await thread.publish("a", "z"), 0);
  assert.deepEqual(received, ["x"]);
});
