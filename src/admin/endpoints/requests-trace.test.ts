import assert from "node:assert/strict";
import { test } from "node:test";
import { askAdmin, readStream } from "../../../test/support/admin.ts";
import { anExchange } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import { createTraceHub } from "../../observe/trace/trace.ts";
import { traceEndpoint } from "./requests.ts";

test("a trace is armed before any request, carries its events and ends with it", async () => {
  const clock = fakeClock();
  const hub = createTraceHub<Exchange>();
  const { answer } = await askAdmin(traceEndpoint(hub, clock));
  const read = readStream(answer);
  assert.match(read.text(), /^: armed/);
  const watcher = hub.take(anExchange());
  watcher?.event({ eventStart: null, eventEnd: 3, severity: "info", message: { type: "requestStarted" } });
  watcher?.finished();
  await read.ended;
  assert.match(
    read.text(),
    /data: \{"eventStart":null,"eventEnd":3,"severity":"info","message":\{"type":"requestStarted"\}\}\n\n$/,
  );
  assert.equal(clock.pending(), 0);
});

test("an answer whose body nobody asked for (HEAD) leaves nobody waiting", async () => {
  const hub = createTraceHub<Exchange>();
  await askAdmin(traceEndpoint(hub, fakeClock()));
  assert.equal(hub.waiting(), 0);
});

test("a reader that leaves is no longer waiting", async () => {
  const hub = createTraceHub<Exchange>();
  readStream((await askAdmin(traceEndpoint(hub, fakeClock()))).answer).leave();
  assert.equal(hub.waiting(), 0);
});
