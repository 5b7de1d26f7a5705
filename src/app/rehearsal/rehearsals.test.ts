import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createRehearsals, RehearsalBusy, type RehearsalProcess } from "./rehearsals.ts";
import type { Rehearsal } from "./rehearse.ts";

const FOUND: Rehearsal = { ok: false, problems: ["of the process"] };
const SOURCE = { file: "a.yaml", text: "nonsense: true" };
const DATA = { input: { before: undefined, after: [SOURCE], environment: {} }, segments: [] };

class FakeProcess extends EventEmitter {
  isEnded = false;
  isHeld = true;
  isChannelHeld = true;
  asked = 0;
  readonly channel = {
    ref: (): void => {
      this.isChannelHeld = true;
    },
    unref: (): void => {
      this.isChannelHeld = false;
    },
  };
  send(): boolean {
    this.asked += 1;
    return true;
  }
  kill(): boolean {
    this.isEnded = true;
    this.emit("exit", null, "SIGKILL");
    return true;
  }
  ref(): void {
    this.isHeld = true;
  }
  unref(): void {
    this.isHeld = false;
  }
  ready(): void {
    this.emit("message", { isReady: true });
  }
  find(): void {
    this.emit("message", { found: FOUND });
  }
}

function rehearsalsOf() {
  const clock = fakeClock();
  const processes: FakeProcess[] = [];
  const rehearsals = createRehearsals(clock, () => {
    const process = new FakeProcess();
    processes.push(process);
    return process as unknown as RehearsalProcess;
  });
  const processAt = (index: number): FakeProcess => {
    const process = processes[index];
    assert.ok(process);
    return process;
  };
  return { clock, processes, rehearsals, processAt };
}

test("the process stays for the next rehearsal, does not hold the gateway, and ends after a minute", async () => {
  const { clock, processes, rehearsals, processAt } = rehearsalsOf();
  for (let i = 0; i < 2; i++) {
    const found = rehearsals.run(DATA);
    assert.deepEqual([processAt(0).isHeld, processAt(0).isChannelHeld], [true, true]);
    await assert.rejects(rehearsals.run(DATA), RehearsalBusy);
    processAt(0).find();
    assert.equal(await found, FOUND);
    assert.deepEqual([processAt(0).isHeld, processAt(0).isChannelHeld], [false, false]);
    await clock.advance(30_000);
  }
  assert.deepEqual([processes.length, processAt(0).asked, processAt(0).isEnded], [1, 2, false]);
  await clock.advance(30_001);
  assert.equal(processAt(0).isEnded, true);
  void rehearsals.run(DATA);
  assert.equal(processes.length, 2);
});

test("a rehearsal that never ends is ended, and the next has a process of its own", async () => {
  const { clock, rehearsals, processAt } = rehearsalsOf();
  const found = rehearsals.run(DATA);
  const rejected = assert.rejects(found, /took longer than 180000 ms/);
  await clock.advance(180_001);
  await rejected;
  assert.equal(processAt(0).isEnded, true);
  const next = rehearsals.run(DATA);
  processAt(1).find();
  assert.equal(await next, FOUND);
});

test("what ends a kept process is no reason to work on the thread that serves", async () => {
  const { rehearsals, processAt } = rehearsalsOf();
  const first = rehearsals.run(DATA);
  processAt(0).ready();
  processAt(0).find();
  await first;
  const second = rehearsals.run(DATA);
  processAt(0).emit("error", new Error("out of memory"));
  await assert.rejects(second, /out of memory/);
});

test("a process that ends at work says how, and so does one that fails; neither is kept", async () => {
  const { rehearsals, processAt } = rehearsalsOf();
  const first = rehearsals.run(DATA);
  processAt(0).ready();
  processAt(0).emit("exit", null, "SIGABRT");
  await assert.rejects(first, /the rehearsal process ended with SIGABRT/);
  const second = rehearsals.run(DATA);
  processAt(1).emit("message", { error: "no such policy" });
  await assert.rejects(second, /^Error: no such policy$/);
  assert.equal(processAt(1).isEnded, true);
  const third = rehearsals.run(DATA);
  processAt(2).find();
  assert.equal(await third, FOUND);
});

test("a kept process that ends on its own is forgotten", async () => {
  const { rehearsals, processes, processAt } = rehearsalsOf();
  const first = rehearsals.run(DATA);
  processAt(0).find();
  await first;
  processAt(0).emit("error", new Error("later"));
  processAt(0).emit("exit", 1);
  void rehearsals.run(DATA);
  assert.equal(processes.length, 2);
});

test("without a process the rehearsal runs here", async () => {
  const { rehearsals, processAt } = rehearsalsOf();
  const found = rehearsals.run(DATA);
  processAt(0).emit("error", new Error("no such file"));
  const { ok, ...rest } = await found;
  assert.equal(ok, false);
  assert.notDeepEqual(rest, { problems: FOUND.ok ? [] : FOUND.problems });
});

test("a rehearsal ends with its client, and the next one begins at once", async () => {
  const { rehearsals, processAt } = rehearsalsOf();
  const client = new AbortController();
  const left = rehearsals.run(DATA, client.signal);
  client.abort();
  await assert.rejects(left, /the client closed the connection/);
  assert.equal(processAt(0).isEnded, true);
  const gone = rehearsals.run(DATA, client.signal);
  await assert.rejects(gone, /the client closed the connection/);
  assert.deepEqual([processAt(1).isEnded, processAt(1).asked], [true, 0]);
  const next = rehearsals.run(DATA);
  processAt(2).find();
  assert.equal(await next, FOUND);
});
