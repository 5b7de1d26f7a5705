import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import { Owner } from "../../base/owner.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { noStore, type Store } from "../../store/store.ts";
import { asClientRequest } from "../protocol/json-rpc.ts";
import { SessionSettings } from "./session-settings.ts";

const key: SigningKey = { sign: (text) => `signed ${text}`, isSignature: () => true, isGiven: true };
const never = Number.MAX_SAFE_INTEGER;

function settingsIn(store: Store): SessionSettings {
  return new SessionSettings({
    clock: systemClock,
    logger: silentLogger,
    store: ownedStore(store, Owner.standalone),
    key,
  });
}

const subscribe = (uri: string) => asClientRequest("resources/subscribe", JSON.stringify({ uri }));
const unsubscribe = (uri: string) => asClientRequest("resources/unsubscribe", JSON.stringify({ uri }));

async function kept(settings: SessionSettings, name = "s"): Promise<unknown[]> {
  return (await settings.of(name)).map(({ method, params }) => [method, params]);
}

test("the last level and the subscriptions that are left are set again", async () => {
  const settings = settingsIn(createMemoryStore(systemClock));
  for (const level of ["error", "debug"])
    await settings.add("s", asClientRequest("logging/setLevel", JSON.stringify({ level })), never);
  for (const request of [subscribe("a:1"), subscribe("a:2"), subscribe("a:1"), unsubscribe("a:2"), unsubscribe("a:3")])
    await settings.add("s", request, never);
  assert.deepEqual(await kept(settings), [
    ["logging/setLevel", { level: "debug" }],
    ["resources/subscribe", { uri: "a:1" }],
  ]);
  assert.deepEqual(await kept(settings, "another"), []);
  settings.end("s");
  assert.deepEqual(await kept(settings), []);
});

test("a list beyond all use is cut, and so are names", async () => {
  const settings = settingsIn(createMemoryStore(systemClock));
  for (let i = 0; i < 600; i++) await settings.add("s", subscribe(`a:${i}`), never);
  await settings.add("t", subscribe("a".repeat(2_000)), never);
  await settings.add("t", asClientRequest("logging/setLevel", JSON.stringify({ level: "x".repeat(1000) })), never);
  assert.equal((await settings.of("s")).length, 500);
  assert.deepEqual(await kept(settings, "t"), []);
});

test("changes at the same time are all kept", async () => {
  const store = createMemoryStore(systemClock);
  const replicas = [settingsIn(store), settingsIn(store), settingsIn(store)];
  await Promise.all(replicas.map((one, i) => one.add("s", subscribe(`a:${i}`), never)));
  assert.equal((await settingsIn(store).of("s")).length, 3);
});

test("a record of another session or with another key is ignored", async () => {
  const store = createMemoryStore(systemClock);
  const settings = settingsIn(store);
  await settings.add("s", subscribe("a:1"), never);
  const { entries } = await store.list("");
  await store.set("mcp-settings/thief", entries[0]?.value ?? "");
  assert.deepEqual(await kept(settings, "thief"), []);
  await store.set("mcp-settings/s", "nonsense");
  assert.deepEqual(await kept(settings), []);
  await settings.add("s", subscribe("a:2"), never);
  assert.equal((await settings.of("s")).length, 1);
});

test("without the store nothing is kept, and nothing fails", async () => {
  const settings = settingsIn(noStore);
  await settings.add("s", subscribe("a:1"), never);
  assert.deepEqual(await kept(settings), []);
});
