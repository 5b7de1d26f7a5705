import assert from "node:assert/strict";
import { test } from "node:test";
import { afterLoad, afterRefusal, afterRestore, firstLoad } from "./reload.ts";

const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, seconds));
const first = firstLoad(at(0), ["config.yaml"], ["one warning"]);

test("the first load is generation 1", () => {
  assert.deepEqual(first, {
    loadedAt: "2026-01-01T00:00:00.000Z",
    generation: 1,
    warnings: ["one warning"],
    sources: ["config.yaml"],
    needsRestart: [],
  });
});

test("a refusal stands beside what is still true of the running configuration", () => {
  const refused = afterRefusal(first, at(1), ["config.yaml:1:1: wrong"]);
  assert.deepEqual(refused, {
    ...first,
    refused: { at: "2026-01-01T00:00:01.000Z", problems: ["config.yaml:1:1: wrong"] },
  });
});

test("a good load counts on, and ends what was refused before", () => {
  const refused = afterRefusal(first, at(1), ["wrong"]);
  assert.deepEqual(afterLoad(refused, at(2), [], ["config"]), {
    loadedAt: "2026-01-01T00:00:02.000Z",
    generation: 2,
    warnings: [],
    sources: ["config.yaml"],
    needsRestart: ["config"],
  });
});

test("sources that are again what runs leave no refusal behind", () => {
  assert.deepEqual(afterRestore(afterRefusal(first, at(1), ["unreadable"])), first);
  assert.deepEqual(afterRestore(first), first);
});
