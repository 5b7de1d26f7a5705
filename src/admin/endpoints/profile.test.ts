import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Profile } from "pprof-format";
import { callAdmin, readStream } from "../../../test/support/admin.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { silentLogger } from "../../record/log/logger.ts";
import type { AdminEndpoint } from "../server/endpoint.ts";
import { noHeapSampling, profileEndpoints, startHeapSampling } from "./profile.ts";

const isLinux = process.platform === "linux";

function endpoints(
  platform = "linux",
  heap = noHeapSampling,
  clock: Clock = systemClock,
): { cpu: AdminEndpoint | undefined; heap: AdminEndpoint } {
  const list = profileEndpoints({ clock, logger: silentLogger, heap, platform });
  const heapEndpoint = list.find(({ path }) => path.endsWith("heap"));
  if (!heapEndpoint) throw new Error("no heap endpoint");
  return { cpu: list.find(({ path }) => path.endsWith("profile")), heap: heapEndpoint };
}

function cpuEndpoint(): AdminEndpoint {
  const { cpu } = endpoints();
  if (!cpu) throw new Error("no cpu endpoint");
  return cpu;
}

/** Returns the function names, the sample types and the number of samples of a profile. */
function decode(bytes: Buffer): { functions: string[]; types: string[]; samples: number } {
  const profile = Profile.decode(gunzipSync(bytes));
  const text = (index: number | bigint): string => profile.stringTable.strings[Number(index)] ?? "";
  return {
    functions: profile.function.map(({ name }) => text(name)),
    types: profile.sampleType.map(({ type, unit }) => `${text(type)}/${text(unit)}`),
    samples: profile.sample.length,
  };
}

for (const query of [
  "seconds=0",
  "seconds=301",
  "seconds=-1",
  "seconds=1e9",
  "seconds=abc",
  "frequency=0",
  "frequency=1001",
]) {
  test(`a cpu profile with ${query} is rejected with the range [N3] [S4.2-6]`, async () => {
    const { status, text } = await callAdmin(cpuEndpoint(), query);
    assert.equal(status, 400);
    assert.match(text, /must be a whole number from 1 to (300|1000)/);
  });
}

test("the cpu profile is not registered on other platforms; the heap profile is, without samples [S4.2-7] [S7-8] [S9-6]", async () => {
  const { cpu, heap } = endpoints("darwin");
  assert.equal(cpu, undefined);
  const { response } = await callAdmin(heap);
  assert.equal(response.status, 200);
  // The library adds memory outside of the heap; there are no samples of allocations.
  assert.deepEqual("body" in response && decode(response.body as Buffer).functions, ["(external)"]);
});

test("a cpu profile shows the functions that were busy; a second one at the same time is 409 [N3]", {
  skip: !isLinux,
}, async () => {
  const endpoint = cpuEndpoint();
  const read = readStream((await callAdmin(endpoint, "seconds=1&frequency=1000")).response);
  const busy = await callAdmin(endpoint, "seconds=1");
  assert.equal(busy.status, 409);
  const timer = setInterval(function burnForTheProfile() {
    const until = process.hrtime.bigint() + 20_000_000n;
    while (process.hrtime.bigint() < until);
  }, 25);
  await read.ended;
  clearInterval(timer);
  const { functions, types } = decode(read.bytes());
  assert.ok(
    functions.some((name) => name.includes("burnForTheProfile")),
    functions.join(", "),
  );
  assert.ok(types.includes("cpu/nanoseconds"));
});

test("without parameters a cpu profile takes 10 seconds at 100 Hz [S4.2-13]", { skip: !isLinux }, async () => {
  const clock = fakeClock();
  const { cpu } = endpoints("linux", noHeapSampling, clock);
  assert.ok(cpu);
  const read = readStream((await callAdmin(cpu)).response);
  await clock.advance(9_999);
  assert.equal(clock.pending(), 1);
  await clock.advance(1);
  await read.ended;
  // With few samples, the library reports up to twice the requested interval.
  const periodMs = Number(Profile.decode(gunzipSync(read.bytes())).period) / 1e6;
  assert.ok(periodMs >= 10 && periodMs <= 20, `${periodMs} ms`);
});

test("a reader that disconnects ends the profile, and the next one works [R42]", { skip: !isLinux }, async () => {
  const endpoint = cpuEndpoint();
  const left = readStream((await callAdmin(endpoint, "seconds=300")).response);
  left.leave();
  const { response } = await callAdmin(endpoint, "seconds=1");
  assert.equal(response.status, 200);
  readStream(response).leave();
});

test("a HEAD request takes no profile and blocks no other", { skip: !isLinux }, async () => {
  const endpoint = cpuEndpoint();
  const head = await endpoint.GET?.({
    method: "HEAD",
    path: endpoint.path,
    query: new URLSearchParams("seconds=300"),
    body: () => Promise.resolve(Buffer.alloc(0)),
  });
  assert.equal(head?.status, 200);
  const { response } = await callAdmin(endpoint, "seconds=1");
  assert.equal(response.status, 200);
  readStream(response).leave();
});

test("the heap profile shows live allocations [S4.2-14]", { skip: !isLinux }, async () => {
  const sampling = startHeapSampling();
  const kept = keepForTheProfile();
  const { response } = await callAdmin(endpoints("linux", sampling).heap);
  sampling.stop();
  assert.ok(kept.length > 0);
  const { functions, types, samples } = decode("body" in response ? (response.body as Buffer) : Buffer.alloc(0));
  assert.ok(samples > 0);
  assert.ok(
    functions.some((name) => name.includes("keepForTheProfile")),
    functions.join(", "),
  );
  assert.ok(types.includes("inuse_space/bytes"), types.join(", "));
});

function keepForTheProfile(): object[] {
  return Array.from({ length: 200_000 }, (_, i) => ({ i, text: `text ${i}`, list: [i] }));
}
